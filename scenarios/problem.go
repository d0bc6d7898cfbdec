package scenarios

import (
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a scenario.
type Problem struct {
	// Where is "file:line", or the override that set the value. It is empty when the scenario was not read from text.
	Where string
	// Path is the field, e.g. "steps.2.churn.rate"; empty for the whole file.
	Path string
	// Text says what is wrong, and what is allowed.
	Text string
}

func (p Problem) String() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{p.Where, p.Path, p.Text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Problems is everything that is wrong with a scenario: an error with one line a problem.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// err returns nil when there are no problems: an error that holds a nil Problems would not be nil.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

func (ps *Problems) add(path, text string) {
	*ps = append(*ps, Problem{Path: path, Text: text})
}

// nearest returns the one of names that name most likely misspells, or "" when none comes close.
func nearest(name string, names []string) string {
	best, bestDistance := "", max(2, len(name)/3)+1
	for _, n := range names {
		if strings.EqualFold(n, name) {
			return n
		}
		if d := editDistance(strings.ToLower(name), strings.ToLower(n)); d < bestDistance && d < len(n) {
			best, bestDistance = n, d
		}
	}
	return best
}

// editDistance counts the bytes to insert, delete or replace to turn a into b. Long names are cut: a name that differs
// so much from every field is no typo.
func editDistance(a, b string) int {
	const enough = 64
	a, b = a[:min(len(a), enough)], b[:min(len(b), enough)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// isOneOf returns the message for a word that is not allowed.
func isOneOf(word string, allowed []string) string {
	text := quote(word) + " is none of: " + strings.Join(allowed, ", ")
	if n := nearest(word, allowed); n != "" {
		text += "; did you mean " + n + "?"
	}
	return text
}

// quote puts a written value between quotes, cut to a readable length.
func quote(s string) string {
	const readable = 60
	if len(s) > readable {
		s = strings.ToValidUTF8(s[:readable], "") + "…"
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '�'
		}
		return r
	}, s) + `"`
}

// parentOf cuts the last element off a path.
func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i]
	}
	return ""
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// covers reports whether one of the paths is path or lies above it.
func covers(paths []string, path string) bool {
	return slices.ContainsFunc(paths, func(p string) bool {
		return p == "" || p == path || strings.HasPrefix(path, p+".")
	})
}
