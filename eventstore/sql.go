package eventstore

import (
	"embed"
	"reflect"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// statements holds each file of sql/ with the name of the schema put in.
type statements struct {
	Settings, Counts                                         string
	EnsureStreams, LockStreams, FindEvents                   string
	Register, InsertEvents, AdvanceStreams                   string
	HoldHeads, MoveHead                                      string
	HorizonHead, Horizon                                     string
	Page, Log, LogBackward, Stream, StreamBackward, Ranges   string
	Replay, StreamsByID                                      string
	Checkpoints, Checkpoint                                  string
	Heartbeat, LeaveInstance                                 string
	EnsureLeases, LockLeases, TakeLeases, Fence, FenceLimits string
	Ownership, GiveLeases                                    string
	Leases, ReleaseLeases                                    string
	CountRange, LoadSnapshot, SaveSnapshot                   string
	InsertDeadLetter, Park, Parked, ParkedCounts, Release    string
	CreateMigrations, AppliedMigrations, NoteMigration       string
	ImportKnown, ImportLast, ImportStreams, ImportAdvance    string

	Processed, ForgetProcessed                                           string
	AdvanceCheckpoints, RewindCheckpoints, PositionBefore                string
	Streams                                                              string
	DoctorGuards, DoctorStreams, DoctorHeads, DoctorTwice, DoctorHolders string
	DoctorCheckpoints, DoctorViews, DoctorRows, DoctorStrays             string
	DoctorParked, DoctorDeadLetters, DoctorInstances, DoctorLeases       string
}

// newStatements fills each field from its file: LockStreams from lock_streams.sql.
func newStatements(schema string) (s statements) {
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		file := "sql/" + strings.ToLower(humps.ReplaceAllString(v.Type().Field(i).Name, "${1}_${2}")) + ".sql"
		text, err := sqlFiles.ReadFile(file)
		if err != nil {
			panic(err) // part of the program: a broken build
		}
		v.Field(i).SetString(qualify(string(text), schema))
	}
	return s
}

var humps = regexp.MustCompile(`([a-z])([A-Z])`)

// schemaPrefix finds "weir." before a name, and names in literals as a whole.
var schemaPrefix = regexp.MustCompile(`'weir\.\w+'|\bweir\.`)

// qualify puts the quoted name of the schema in the place of "weir".
func qualify(sql, schema string) string {
	quoted := pgx.Identifier{schema}.Sanitize()
	return schemaPrefix.ReplaceAllStringFunc(sql, func(found string) string {
		name, isLiteral := strings.CutPrefix(found, "'weir.")
		if !isLiteral {
			return quoted + "."
		}
		return "'" + strings.ReplaceAll(quoted, "'", "''") + "." + name
	})
}
