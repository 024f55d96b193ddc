package ops

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// completeVerb is what the scripts call: the words of a command line so far, the
// last of them unfinished, give the words that it may become, one a line.
const completeVerb = "__complete"

// complete prints what the last of words may become.
func (p Program) complete(words []string) int {
	parser, err := p.parser(&grammar{}, func(int) {})
	if err != nil {
		return Unable
	}
	for _, word := range candidates(parser.Model.Node, words, p.modelNames()) {
		fmt.Fprintln(p.Stdout, word)
	}
	return Done
}

// candidates are the words that may stand in the place of the last one, in the
// order of the help. views are those of the program.
func candidates(node *kong.Node, words, views []string) []string {
	if len(words) == 0 {
		return nil
	}
	last, arguments := len(words)-1, 0
	var open *kong.Flag // waits for its value
	for _, word := range words[:last] {
		switch flag := flagOf(node, word); {
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			if flag != nil && !flag.IsBool() && !strings.Contains(word, "=") {
				open = flag
			}
		case childOf(node, word) != nil:
			node = childOf(node, word)
		default:
			arguments++
		}
	}
	return beginning(words[last], choices(node, open, words[last], arguments, views))
}

// choices are all words that make sense there.
func choices(node *kong.Node, open *kong.Flag, word string, arguments int, views []string) (all []string) {
	switch {
	case open != nil:
		return enum(open.Value)
	case strings.HasPrefix(word, "-"):
		for _, group := range node.AllFlags(true) {
			for _, flag := range group {
				all = append(all, "--"+flag.Name)
			}
		}
		return all
	case arguments < len(node.Positional):
		if node.Positional[arguments].Tag.Get("complete") == "view" {
			return views
		}
		return enum(node.Positional[arguments])
	}
	for _, child := range node.Children {
		if !child.Hidden {
			all = append(all, child.Name)
		}
	}
	return all
}

func enum(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return v.EnumSlice()
}

func beginning(with string, all []string) (some []string) {
	for _, word := range all {
		if strings.HasPrefix(word, with) {
			some = append(some, word)
		}
	}
	return some
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	name, _, _ := strings.Cut(word, "=")
	for _, group := range node.AllFlags(false) {
		for _, flag := range group {
			if name == "--"+flag.Name || flag.Short != 0 && name == "-"+string(flag.Short) {
				return flag
			}
		}
	}
	return nil
}

func childOf(node *kong.Node, name string) *kong.Node {
	for _, child := range node.Children {
		if child.Name == name {
			return child
		}
	}
	return nil
}

type completionCommand struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCommand) run(_ context.Context, s *session) error {
	_, err := io.WriteString(s.out.w, completionScript(c.Shell, s.Name))
	return err
}

// completionScript is a script for a program whose name may have several words.
func completionScript(shell, name string) string {
	words := strings.Fields(name)
	return strings.NewReplacer(
		"FUNCTION", "_"+strings.Map(letters, name)+"_complete",
		"COMMAND", words[0],
		"PROGRAM", name,
		"SKIP", strconv.Itoa(len(words)),
	).Replace(scripts[shell])
}

func letters(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '_'
}

var scripts = map[string]string{
	"bash": `# In ~/.bashrc: source <(PROGRAM completion bash)
FUNCTION() {
    local IFS=$'\n'
    COMPREPLY=($(PROGRAM ` + completeVerb + ` "${COMP_WORDS[@]:SKIP:COMP_CWORD-SKIP+1}" 2>/dev/null))
}
complete -o default -F FUNCTION COMMAND
`,
	"zsh": `#compdef COMMAND
# In ~/.zshrc, after compinit: source <(PROGRAM completion zsh)
FUNCTION() {
    local -a found
    found=(${(f)"$(PROGRAM ` + completeVerb + ` "${(@)words[SKIP+1,CURRENT]}" 2>/dev/null)"})
    if (( $#found )); then compadd -a found; else _files; fi
}
compdef FUNCTION COMMAND
`,
	"fish": `# PROGRAM completion fish > ~/.config/fish/completions/COMMAND.fish
function FUNCTION
    set -l words (commandline -opc)
    set -e words[1..SKIP]
    set -l last (commandline -ct)
    PROGRAM ` + completeVerb + ` $words "$last" 2>/dev/null
end
complete -c COMMAND -f -n 'test (count (FUNCTION)) -gt 0' -a '(FUNCTION)'
`,
}
