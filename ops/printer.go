package ops

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// printer prints results: structs whose fields have a json tag. As JSON each is an
// object on a line. As a table the tags are the head, and each is a line; a field
// tagged table:"-" is left out. Columns grow with what comes and never shrink, so
// that a table can be printed while its rows are still to happen.
type printer struct {
	w      *bufio.Writer
	asJSON bool
	cut    int // the longest payload in a table, in characters; 0 is no limit

	widths []int
	held   [][]string // rows that wait for flush, so that columns fit them
}

// A terminal has no room for whole payloads.
const terminalCut = 80

func newPrinter(w io.Writer, asJSON bool) *printer {
	p := &printer{w: bufio.NewWriter(w), asJSON: asJSON}
	if isTerminal(w) {
		p.cut = terminalCut
	}
	return p
}

// isTerminal takes a reader or a writer.
func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// tabled is a result that as a table is other rows than itself.
type tabled interface{ table() []any }

// lined is a result that knows its line of JSON.
type lined interface{ appendJSON(b []byte) []byte }

// print prints one result.
func (p *printer) print(result any) error {
	if line, ok := result.(lined); ok && p.asJSON {
		_, err := p.w.Write(line.appendJSON(p.w.AvailableBuffer()))
		return err
	}
	if p.asJSON {
		e := json.NewEncoder(p.w)
		e.SetEscapeHTML(false)
		return e.Encode(result)
	}
	rows := []any{result}
	if t, ok := result.(tabled); ok {
		rows = t.table()
	}
	for _, row := range rows {
		p.hold(reflect.ValueOf(row))
	}
	if len(p.held) < 100 {
		return nil
	}
	return p.flush()
}

// hold keeps a row, after the head if it is the first.
func (p *printer) hold(row reflect.Value) {
	var head, cells []string
	for i := range row.NumField() {
		field := row.Type().Field(i)
		if field.Tag.Get("table") == "-" {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		head = append(head, strings.ToUpper(name))
		cells = append(cells, p.cell(row.Field(i).Interface()))
	}
	if p.widths == nil {
		p.widths = make([]int, len(head))
		p.held = append(p.held, head)
	}
	p.held = append(p.held, cells)
}

func (p *printer) cell(value any) string {
	switch v := value.(type) {
	case time.Time:
		if v.IsZero() {
			return ""
		}
		return v.UTC().Format("2006-01-02T15:04:05.000Z")
	case json.RawMessage:
		return p.shorten(plain(compact(v)))
	}
	return plain(fmt.Sprint(value))
}

func compact(text []byte) string {
	var b bytes.Buffer
	if json.Compact(&b, text) != nil {
		return string(text)
	}
	return b.String()
}

func (p *printer) shorten(text string) string {
	if p.cut == 0 || utf8.RuneCountInString(text) <= p.cut {
		return text
	}
	return string([]rune(text)[:p.cut]) + "…"
}

// plain keeps what would move the cursor, or worse, away from the terminal.
func plain(text string) string {
	hostile := func(r rune) bool { return !unicode.IsPrint(r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, hostile) {
		return text
	}
	quoted := strconv.Quote(text)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// flush writes everything that was printed.
func (p *printer) flush() error {
	for _, cells := range p.held {
		for i, cell := range cells {
			p.widths[i] = max(p.widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, cells := range p.held {
		p.w.WriteString(p.line(cells))
	}
	p.held = nil
	return p.w.Flush()
}

func (p *printer) line(cells []string) string {
	var b strings.Builder
	for i, cell := range cells {
		b.WriteString(cell)
		b.WriteString(strings.Repeat(" ", 2+p.widths[i]-utf8.RuneCountInString(cell)))
	}
	return strings.TrimRight(b.String(), " ") + "\n"
}
