package bench

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"synclab/proxier/runner"
)

// Settings are those of a subject's process that a KubeProxyConfiguration does not have. All subjects have the same, which
// are kube-proxy's, unless suffixes of their names say otherwise.
type Settings struct {
	// Policy of the runner. Default completion-to-start, which kube-proxy cannot change.
	Policy runner.Policy
	// GOGC of the process. Default 100.
	GOGC int
	// ReturnMemory: the process gives memory back to the system after its first full sync.
	ReturnMemory bool
}

// defaultSettings are what a name without suffixes stands for.
var defaultSettings = Settings{Policy: runner.CompletionToStart, GOGC: 100}

// tuned are the settings that `synclab proxy` has by default.
var tuned = Settings{Policy: runner.TokenBucket, GOGC: 50, ReturnMemory: true}

// Suffixes of subjects' names, and what each stands for.
func Suffixes() [][2]string {
	return [][2]string{
		{"+bucket", "runner policy token-bucket instead of completion-to-start (synclab)"},
		{"+gogcN", "GOGC=N instead of 100, of any subject"},
		{"+tuned", "what 'synclab proxy' does by default: token-bucket, GOGC=50, memory given back after the first full sync (synclab)"},
	}
}

// withSettings is a subject by its full name, with the settings of its suffixes. Their order has no meaning.
func (s Subject) withSettings(name string) (Subject, error) {
	words := strings.Split(name, "+")
	suffixes := words[1:]
	slices.Sort(suffixes)
	s.Base, s.Name, s.Settings = words[0], strings.Join(append(words[:1], suffixes...), "+"), defaultSettings
	for i, suffix := range suffixes {
		number, isGC := strings.CutPrefix(suffix, "gogc")
		percent, err := strconv.Atoi(number)
		switch {
		case i > 0 && suffix == suffixes[i-1]:
			return Subject{}, fmt.Errorf("subject %q: +%s stands there twice", name, suffix)
		case suffix == "tuned" && len(suffixes) > 1:
			return Subject{}, fmt.Errorf("subject %q: +tuned takes no other suffix", name)
		case isGC && err == nil && percent > 0:
			s.GOGC = percent
		case (suffix == "bucket" || suffix == "tuned") && s.Proxier != Synclab:
			return Subject{}, fmt.Errorf("subject %q: +%s is a setting of synclab's proxier alone; want +gogcN", name, suffix)
		case suffix == "bucket":
			s.Policy = runner.TokenBucket
		case suffix == "tuned":
			s.Settings = tuned
		default:
			return Subject{}, fmt.Errorf("subject %q: the suffix +%s is not known; want +bucket, +gogcN (such as +gogc50) or +tuned", name, suffix)
		}
	}
	return s, nil
}

// ofProcess says whether some of the settings need a process of the subject's own.
func (s Settings) ofProcess() bool { return s.GOGC != defaultSettings.GOGC || s.ReturnMemory }

// policy of the runner: the scenario's, which it may sweep, goes before the subject's.
func (r *repetition) policy() runner.Policy {
	return cmp.Or(runner.Policy(r.Scenario.Proxy.Policy), r.about.Policy)
}
