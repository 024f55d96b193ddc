package devserver

import (
	"context"
	"errors"
	"os"
	"sync"
)

// Server is a NATS and a PostgreSQL, ready to use.
type Server struct {
	// Postgres is the URL of a database, for its superuser.
	Postgres string

	// NATS is the URL of a NATS server with JetStream.
	NATS string

	postgres *Postgres
	nats     *NATS
}

// Start starts both servers and returns when they are ready. The environment
// variables WEIR_POSTGRES and WEIR_NATS, if they are not empty, are the URLs of
// servers that run already; those are neither started nor tried. The caller
// closes the server.
func Start(ctx context.Context) (*Server, error) {
	s := &Server{Postgres: os.Getenv("WEIR_POSTGRES"), NATS: os.Getenv("WEIR_NATS")}
	var both sync.WaitGroup
	var postgresErr, natsErr error
	if s.Postgres == "" {
		both.Go(func() { postgresErr = s.startPostgres(ctx) })
	}
	if s.NATS == "" {
		both.Go(func() { natsErr = s.startNATS(ctx) })
	}
	both.Wait()
	if err := errors.Join(postgresErr, natsErr); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) startPostgres(ctx context.Context) error {
	p, err := StartPostgres(ctx, PostgresConfig{})
	if err != nil {
		return err
	}
	s.postgres, s.Postgres = p, p.URL()
	return nil
}

func (s *Server) startNATS(ctx context.Context) error {
	n, err := StartNATS(ctx, NATSConfig{})
	if err != nil {
		return err
	}
	s.nats, s.NATS = n, n.URL()
	return nil
}

// PostgresServer is the PostgreSQL that Start started, or nil.
func (s *Server) PostgresServer() *Postgres { return s.postgres }

// NATSServer is the NATS that Start started, or nil.
func (s *Server) NATSServer() *NATS { return s.nats }

// Close ends what Start started and removes every file of it. It may be called
// again.
func (s *Server) Close() error {
	var errs []error
	if s.nats != nil {
		errs = append(errs, s.nats.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Close())
	}
	return errors.Join(errs...)
}
