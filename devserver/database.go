package devserver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// templates are the databases that others are cloned from, by their names.
type templates struct {
	mu     sync.Mutex
	byName map[string]*template
}

// A template is a database that takes no connections.
type template struct {
	mu       sync.Mutex
	database string // "" until it is prepared
}

func (t *templates) get(name string) *template {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byName == nil {
		t.byName = map[string]*template{}
	}
	if t.byName[name] == nil {
		t.byName[name] = &template{}
	}
	return t.byName[name]
}

// NewDatabase makes an empty database on this server and returns its URL. It is
// never dropped: it goes when the server does.
func (p *Postgres) NewDatabase(ctx context.Context) (url string, err error) {
	return p.createDatabase(ctx, "template1")
}

// CloneDatabase makes a database that is a copy of the one that prepare leaves
// behind, and returns its URL. The first call with a name lets prepare work on a
// new database; all others with that name wait for it and then only copy, which
// takes some 15 ms. If prepare fails, its error is returned and the next call
// tries again.
func (p *Postgres) CloneDatabase(ctx context.Context, name string, prepare func(ctx context.Context, url string) error) (url string, err error) {
	database, err := p.prepared(ctx, p.templates.get(name), prepare)
	if err != nil {
		return "", fmt.Errorf("prepare template %s: %w", name, err)
	}
	return p.createDatabase(ctx, database)
}

// prepared returns the name of the template's database.
func (p *Postgres) prepared(ctx context.Context, t *template, prepare func(context.Context, string) error) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.database != "" {
		return t.database, nil
	}
	name := newName()
	if err := p.execute(ctx, p.create(name, "template1")); err != nil {
		return "", err
	}
	if err := prepare(ctx, p.url(name)); err != nil {
		return "", errors.Join(err, p.execute(ctx, "drop database "+quoted(name)+" with (force)"))
	}
	if err := p.seal(ctx, name); err != nil {
		return "", err
	}
	t.database = name
	return name, nil
}

// seal closes a database to connections, those that prepare forgot included: a
// database in use cannot be copied.
func (p *Postgres) seal(ctx context.Context, name string) error {
	return p.execute(ctx,
		"alter database "+quoted(name)+" allow_connections false",
		"select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '"+name+"'")
}

func (p *Postgres) createDatabase(ctx context.Context, template string) (url string, err error) {
	name := newName()
	if err := p.execute(ctx, p.create(name, template)); err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	return p.url(name), nil
}

// create returns the statement that copies a database. Copying files wants two
// checkpoints, which cost nothing if no disk is waited for.
func (p *Postgres) create(name, template string) string {
	strategy := "file_copy"
	if p.config.Durable {
		strategy = "wal_log"
	}
	return fmt.Sprintf("create database %s template %s strategy %s", quoted(name), quoted(template), strategy)
}

func newName() string { return "dev_" + randomName() }

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
