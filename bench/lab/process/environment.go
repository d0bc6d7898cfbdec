package process

import (
	"os"
	"slices"
	"strings"
)

// passed are the variables of the environment that subjects get. A name that ends with * stands for all that begin so.
// The environment may have secrets, such as the tokens of CI, so subjects do not get the others.
var passed = []string{"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_*", "GODEBUG", "GOMAXPROCS", "XTABLES_*", "SYNCLAB_*"}

// Environment returns the variables ("NAME=value") of this process that a subject gets, and those with the other names.
func Environment(others []string) []string {
	return slices.DeleteFunc(os.Environ(), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return !slices.Contains(others, name) && !slices.ContainsFunc(passed, func(pattern string) bool {
			start, all := strings.CutSuffix(pattern, "*")
			return name == pattern || all && strings.HasPrefix(name, start)
		})
	})
}
