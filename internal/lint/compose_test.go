package lint

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/sirupsen/logrus"
)

// The addresses that README.md and docker-compose.yml give for the two variables.
const (
	composePostgres = "postgres://weir:weir@127.0.0.1:5432/weir"
	composeNATS     = "nats://127.0.0.1:4222"
)

// loadCompose reads a compose file as `docker compose` would. What docker compose
// only warns of is an error here.
func loadCompose(name string, content []byte) (*types.Project, error) {
	warned := &warnings{}
	logrus.SetOutput(io.Discard)
	hooks := logrus.StandardLogger().ReplaceHooks(logrus.LevelHooks{})
	defer logrus.StandardLogger().ReplaceHooks(hooks)
	logrus.AddHook(warned)

	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(name),
		ConfigFiles: []types.ConfigFile{{Filename: name, Content: content}},
		Environment: types.Mapping{},
	})
	if err == nil && len(warned.lines) > 0 {
		err = fmt.Errorf("warned: %s", strings.Join(warned.lines, "; "))
	}
	return project, err
}

// warnings is a logrus.Hook that keeps what was said.
type warnings struct{ lines []string }

func (w *warnings) Levels() []logrus.Level { return logrus.AllLevels }

func (w *warnings) Fire(e *logrus.Entry) error {
	w.lines = append(w.lines, e.Message)
	return nil
}

// faults are what a compose file for development must not have: a service that
// nobody can wait for, an image that changes under us, data that goes with the
// container, a port that the neighbours reach.
func faults(p *types.Project) (complaints []string) {
	for _, name := range p.ServiceNames() {
		for _, c := range serviceFaults(p.Services[name]) {
			complaints = append(complaints, name+" "+c)
		}
	}
	return complaints
}

// pinned is an image with at least a minor version in its tag.
var pinned = regexp.MustCompile(`:\d+\.\d+[A-Za-z0-9.-]*$`)

func serviceFaults(s types.ServiceConfig) (complaints []string) {
	complain := func(when bool, format string, args ...any) {
		if when {
			complaints = append(complaints, fmt.Sprintf(format, args...))
		}
	}
	complain(!pinned.MatchString(s.Image), "has image %q, which names no version", s.Image)
	complain(s.HealthCheck == nil || s.HealthCheck.Disable || len(s.HealthCheck.Test) < 2, "has no healthcheck")
	complain(s.Restart != "unless-stopped", "has restart policy %q", s.Restart)
	complain(!keepsData(s), "keeps no data in a named volume")
	complain(len(s.Ports) == 0, "publishes no port")
	for _, port := range s.Ports {
		complain(port.HostIP != "127.0.0.1", "publishes port %d on %q", port.Target, port.HostIP)
	}
	return complaints
}

func keepsData(s types.ServiceConfig) bool {
	return slices.ContainsFunc(s.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeVolume && v.Source != ""
	})
}

// addresses are where a program on this machine finds the two servers.
func addresses(p *types.Project) (postgres, nats string) {
	env := p.Services["postgres"].Environment
	get := func(name string) string {
		if v := env[name]; v != nil {
			return *v
		}
		return ""
	}
	postgres = fmt.Sprintf("postgres://%s:%s@%s/%s", get("POSTGRES_USER"), get("POSTGRES_PASSWORD"), published(p, "postgres", 5432), get("POSTGRES_DB"))
	return postgres, "nats://" + published(p, "nats", 4222)
}

func published(p *types.Project, service string, target uint32) string {
	for _, port := range p.Services[service].Ports {
		if port.Target == target {
			return port.HostIP + ":" + port.Published
		}
	}
	return ""
}

func ourCompose(t *testing.T) (*types.Project, []byte) {
	t.Helper()
	name, err := filepath.Abs(filepath.Join(top, "docker-compose.yml"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	project, err := loadCompose(name, content)
	if err != nil {
		t.Fatal(err)
	}
	return project, content
}

func TestCompose(t *testing.T) {
	project, content := ourCompose(t)
	report(t, faults(project))
	if got := project.ServiceNames(); !slices.Equal(got, []string{"nats", "postgres"}) {
		t.Errorf("services are %q", got)
	}
	postgres, nats := addresses(project)
	if postgres != composePostgres || nats != composeNATS {
		t.Errorf("servers are at %s and %s, documented are %s and %s", postgres, nats, composePostgres, composeNATS)
	}
	for _, said := range []string{"WEIR_POSTGRES=" + composePostgres, "WEIR_NATS=" + composeNATS} {
		if !strings.Contains(string(content), said) {
			t.Errorf("docker-compose.yml does not mention %s", said)
		}
	}
}

func TestComposeMountsTheNATSConfiguration(t *testing.T) {
	project, _ := ourCompose(t)
	nats := project.Services["nats"]
	mounted := slices.ContainsFunc(nats.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeBind && v.ReadOnly &&
			filepath.Base(v.Source) == "nats.conf" && slices.Contains(nats.Command, v.Target)
	})
	if !mounted {
		t.Errorf("nats runs %q with %v: deploy/nats.conf is not what it reads", nats.Command, nats.Volumes)
	}
	options := natsOptions(t, filepath.Join(top, "deploy/nats.conf"))
	stored := slices.ContainsFunc(nats.Volumes, func(v types.ServiceVolumeConfig) bool {
		return v.Type == types.VolumeTypeVolume && v.Target == options.StoreDir
	})
	if !stored {
		t.Errorf("store_dir %q is on none of the volumes %v", options.StoreDir, nats.Volumes)
	}
	health := strings.Join(nats.HealthCheck.Test, " ")
	if want := fmt.Sprintf("http://%s:%d/healthz", options.HTTPHost, options.HTTPPort); !strings.Contains(health, want) {
		t.Errorf("the healthcheck %q does not ask %s", health, want)
	}
}

// natsOptions reads a server configuration as nats-server does; a warning fails too.
func natsOptions(t *testing.T, file string) *server.Options {
	t.Helper()
	options := &server.Options{}
	if err := options.ProcessConfigFile(file); err != nil {
		t.Fatalf("read %s: %v", file, err)
	}
	return options
}

func TestNATSConfigurationIsDurable(t *testing.T) {
	options := natsOptions(t, filepath.Join(top, "deploy/nats.conf"))
	if !options.JetStream || !options.SyncAlways {
		t.Errorf("jetstream %t, sync_interval always %t: both are documented", options.JetStream, options.SyncAlways)
	}
	if options.MaxPayload != 0 && options.MaxPayload != server.MAX_PAYLOAD_SIZE {
		t.Errorf("max_payload is %d, documented is the default", options.MaxPayload)
	}
}

func TestUnknownNATSSettingIsFound(t *testing.T) {
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte("jetstream { sync_intervall: always }"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := (&server.Options{}).ProcessConfigFile(file); err == nil {
		t.Error("a misspelt setting was accepted")
	}
}

func TestComposeFaultsAreFound(t *testing.T) {
	const good = `
name: weir
services:
  db:
    image: postgres:17.10
    restart: unless-stopped
    ports: ["127.0.0.1:5432:5432"]
    volumes: ["data:/var/lib/postgresql/data"]
    healthcheck: {test: ["CMD", "pg_isready"]}
volumes: {data: {}}
`
	for _, c := range []struct{ name, old, new, want string }{
		{"good", "", "", ""},
		{"no version", ":17.10", "", "names no version"},
		{"latest", ":17.10", ":latest", "names no version"},
		{"only a major version", ":17.10", ":17", "names no version"},
		{"no healthcheck", `healthcheck: {test: ["CMD", "pg_isready"]}`, "", "no healthcheck"},
		{"switched off", `["CMD", "pg_isready"]`, `["NONE"]`, "no healthcheck"},
		{"every address", "127.0.0.1:5432:5432", "5432:5432", "publishes port 5432"},
		{"anonymous volume", "data:/var", "/var", "keeps no data"},
		{"no restart", "restart: unless-stopped", "", "restart policy"},
	} {
		t.Run(c.name, func(t *testing.T) {
			project, err := loadCompose("compose.yml", []byte(strings.Replace(good, c.old, c.new, 1)))
			if err != nil {
				t.Fatal(err)
			}
			wantComplaint(t, faults(project), c.want)
		})
	}
	for _, c := range []struct{ name, old, new, want string }{
		{"unknown key", "restart:", "restarts:", "restarts"},
		{"undefined volume", "volumes: {data: {}}", "", "data"},
		{"unset variable", "postgres:17.10", "postgres:${VERSION}", "VERSION"},
		{"obsolete version", "name: weir", "name: weir\nversion: \"3\"", "obsolete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := loadCompose("compose.yml", []byte(strings.Replace(good, c.old, c.new, 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one about %s", err, c.want)
			}
		})
	}
}
