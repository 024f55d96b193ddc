package lint

import (
	"fmt"
	"slices"
	"testing"
)

// Modules that a library package may import.
const (
	natsClient = "github.com/nats-io/nats.go"
	pgx        = "github.com/jackc/pgx/v5"
	ulid       = "github.com/oklog/ulid/v2"
	otel       = "go.opentelemetry.io/otel"
	trace      = "go.opentelemetry.io/otel/trace"
	metric     = "go.opentelemetry.io/otel/metric"
	xsync      = "golang.org/x/sync"
	backoff    = "github.com/cenkalti/backoff/v5"
	natsServer = "github.com/nats-io/nats-server/v2"
	embedded   = "github.com/fergusstrange/embedded-postgres"
	kong       = "github.com/alecthomas/kong" // std only; who does not import ops does not carry it
)

var (
	observing = []string{otel, trace, metric}
	common    = slices.Concat(observing, []string{ulid, xsync, backoff})
	both      = slices.Concat(common, []string{natsClient, pgx})
)

// guests says which modules a library room may import. Rooms without a line are
// programs and tests, which may import what they need.
var guests = map[string][]string{
	"weir":               {ulid},
	"batching":           {xsync, backoff},
	"internal/crash":     {},
	"internal/pace":      {},
	"internal/telemetry": observing,
	"transport":          append(slices.Clone(common), natsClient),
	"eventstore":         append(slices.Clone(common), pgx),
	"projection":         append(slices.Clone(common), pgx),
	"saga":               append(slices.Clone(common), pgx),
	"app":                both,
	"ops":                append(slices.Clone(both), kong),
	"dashboard":          both,
	"devserver":          {natsServer, embedded, pgx, natsClient, xsync},
}

// brings says what a guest brings along. It is listed so that a new version that
// brings more is noticed before users have to carry it.
var brings = map[string][]string{
	natsClient: {"github.com/nats-io/nkeys", "github.com/nats-io/nuid", "github.com/klauspost/compress", "golang.org/x/crypto", "golang.org/x/sys"},
	pgx:        {"github.com/jackc/pgpassfile", "github.com/jackc/pgservicefile", "github.com/jackc/puddle/v2", "golang.org/x/text", xsync},
	otel:       {"github.com/go-logr/logr", "github.com/go-logr/stdr", "go.opentelemetry.io/auto/sdk", "github.com/cespare/xxhash/v2"},
	natsServer: {
		"github.com/antithesishq/antithesis-sdk-go", "github.com/google/go-tpm", "github.com/klauspost/compress",
		"github.com/minio/highwayhash", "github.com/nats-io/jwt/v2", "github.com/nats-io/nkeys", "github.com/nats-io/nuid",
		"golang.org/x/crypto", "golang.org/x/sys", "golang.org/x/time",
	},
	embedded: {"github.com/lib/pq", "github.com/xi2/xz"},
}

// strangers are the modules that a library room imports, or reaches through what it
// imports, without being allowed to.
func strangers(packages []pkg, guests, brings map[string][]string) (complaints []string) {
	modules := moduleOf(packages)
	for _, p := range packages {
		invited, isLibrary := guests[room(p.ImportPath)]
		if !isLibrary {
			continue
		}
		for _, m := range uninvited(p.Imports, modules, invited) {
			complaints = append(complaints, fmt.Sprintf("%s imports %s, which its room may not", p.ImportPath, m))
		}
		for _, m := range uninvited(p.Deps, modules, withCompany(invited, brings)) {
			complaints = append(complaints, fmt.Sprintf("%s carries %s along", p.ImportPath, m))
		}
	}
	return complaints
}

// uninvited are the modules of the paths that are neither invited nor ours.
func uninvited(paths []string, modules map[string]string, invited []string) (out []string) {
	for _, path := range paths {
		m := modules[path]
		if m != "" && m != module && !slices.Contains(invited, m) && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	return out
}

// withCompany are the invited modules and all that they bring.
func withCompany(invited []string, brings map[string][]string) []string {
	all := slices.Clone(invited)
	for _, m := range invited {
		all = append(all, brings[m]...)
	}
	return all
}

func TestDependencies(t *testing.T) {
	report(t, strangers(listHouse(t), guests, brings))
}

func TestStrangersAreFound(t *testing.T) {
	from := func(path, m string) pkg {
		return pkg{ImportPath: path, Module: &struct{ Path string }{m}}
	}
	others := []pkg{
		from(pgx+"/pgxpool", pgx), from(natsClient+"/jetstream", natsClient), from(ulid, ulid), from(natsServer+"/server", natsServer),
		from("github.com/jackc/puddle/v2", "github.com/jackc/puddle/v2"), {ImportPath: "fmt", Standard: true},
	}
	for _, c := range []struct {
		name          string
		room          string
		imports, deps []string
		want          string
	}{
		{"std", "batching", []string{"fmt"}, nil, ""},
		{"a guest and its company", "eventstore", []string{pgx + "/pgxpool"}, []string{"github.com/jackc/puddle/v2"}, ""},
		{"programs may", "internal/bench", []string{natsServer + "/server"}, []string{natsServer + "/server"}, ""},
		{"transport and Postgres", "transport", []string{pgx + "/pgxpool"}, nil, "imports " + pgx},
		{"eventstore and NATS", "eventstore", []string{natsClient + "/jetstream"}, nil, "imports " + natsClient},
		{"company without its guest", "transport", nil, []string{"github.com/jackc/puddle/v2"}, "carries github.com/jackc/puddle/v2"},
		{"a whole server", "app", nil, []string{natsServer + "/server"}, "carries " + natsServer},
		{"ids in batching", "batching", []string{ulid}, nil, "imports " + ulid},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := pkg{ImportPath: module + "/" + c.room, Imports: c.imports, Deps: c.deps}
			wantComplaint(t, strangers(append(others, p), guests, brings), c.want)
		})
	}
}
