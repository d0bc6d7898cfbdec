package subject

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"synclab/proxier/runner"
)

// Settings are the settings of a subject's process that a KubeProxyConfiguration does not have. By default, all subjects
// have kube-proxy's. Suffixes of a subject's name change them.
type Settings struct {
	// Policy of the runner. Default completion-to-start, which kube-proxy cannot change.
	Policy runner.Policy
	// GOGC of the process. Default 100.
	GOGC int
	// Gates are the feature gates of kube-proxy that are set besides the run's: "NAME=BOOL,…".
	Gates string
	// ReturnMemory: the process returns memory to the system after its first full sync.
	ReturnMemory bool
	// Config and Tools name a KubeProxyConfiguration and the tools of another system that only this subject has. Empty: the
	// run's.
	Config, Tools string
}

// defaultSettings are the settings of a name without suffixes.
var defaultSettings = Settings{Policy: runner.CompletionToStart, GOGC: 100}

// tuned are the default settings of `synclab proxy`.
var tuned = Settings{Policy: runner.TokenBucket, GOGC: 50, ReturnMemory: true}

// Suffixes returns the suffixes of subjects' names, each with its meaning.
func Suffixes() [][2]string {
	return [][2]string{
		{"+config:NAME=FILE", "the KubeProxyConfiguration of this subject alone, instead of --proxy-config"},
		{"+bucket", "runner policy token-bucket instead of completion-to-start (synclab)"},
		{"+gate:NAME=BOOL", "a feature gate, such as +gate:NFTablesNetlink=false (kube-proxy)"},
		{"+gogcN", "GOGC=N instead of 100, of any subject"},
		{"+tools:NAME=DIR", "iptables, nft and ipset of this subject alone, as with --tools"},
		{"+tuned", "what 'synclab proxy' does by default: token-bucket, GOGC=50, memory returned after the first full sync (synclab)"},
	}
}

// file is a suffix with a file or folder: what it is, its name, and the path, which a name of records lacks.
var file = regexp.MustCompile(`^(config|tools):([A-Za-z0-9][A-Za-z0-9._-]{0,40})(?:=(.+))?$`)

// withSettings returns the subject with a full name and the settings of its suffixes, in any order.
func (s Spec) withSettings(name string) (Spec, error) {
	words := strings.Split(name, "+")
	s.Settings = defaultSettings
	for i, suffix := range words[1:] {
		gate, isGate := strings.CutPrefix(suffix, "gate:")
		number, isGC := strings.CutPrefix(suffix, "gogc")
		percent, err := strconv.Atoi(number)
		parts := file.FindStringSubmatch(suffix)
		switch {
		case slices.Contains(words[1:i+1], suffix):
			return Spec{}, fmt.Errorf("subject %q: +%s is given twice", name, suffix)
		case suffix == "tuned" && len(words) > 2:
			return Spec{}, fmt.Errorf("subject %q: +tuned cannot be combined with other suffixes", name)
		case isGate && s.Proxier == KubeProxy:
			feature, value, _ := strings.Cut(gate, "=")
			if _, given := s.GateValues()[feature]; given || feature == "" || strings.Contains(feature, ",") || value != "true" && value != "false" {
				return Spec{}, fmt.Errorf("subject %q: +%s: want +gate:NAME=true or =false, each gate once", name, suffix)
			}
			s.Gates = strings.TrimPrefix(s.Gates+","+gate, ",")
		case isGC && err == nil && percent > 0:
			s.GOGC = percent
		case (suffix == "bucket" || suffix == "tuned") && s.Proxier != Synclab:
			return Spec{}, fmt.Errorf("subject %q: +%s is only for synclab's proxier; want +gogcN", name, suffix)
		case suffix == "bucket":
			s.Policy = runner.TokenBucket
		case suffix == "tuned":
			s.Settings = tuned
		case parts != nil && parts[1] == "config" && s.Config == "" && !s.OwnOptions:
			s.Config, s.ConfigFile = parts[2], parts[3]
			words[1+i] = "config:" + parts[2]
		case parts != nil && parts[1] == "tools" && s.Tools == "" && s.HasTools():
			s.Tools, s.ToolsRoot = parts[2], parts[3]
			words[1+i] = "tools:" + parts[2]
		default:
			return Spec{}, fmt.Errorf("subject %q: the suffix +%s is not known here; want +bucket, +config:NAME=FILE, +gate:NAME=BOOL, +gogcN (such as +gogc50), +tools:NAME=DIR or +tuned", name, suffix)
		}
	}
	slices.Sort(words[1:])
	gates := strings.Split(s.Gates, ",")
	slices.Sort(gates)
	s.Name, s.Gates = strings.Join(words, "+"), strings.Join(gates, ",")
	return s, nil
}

// GateValues are the values of Gates.
func (s Settings) GateValues() map[string]bool {
	values := map[string]bool{}
	for one := range strings.SplitSeq(s.Gates, ",") {
		if name, value, found := strings.Cut(one, "="); found {
			values[name] = value == "true"
		}
	}
	return values
}

// OfProcess reports whether some of the settings need a separate process.
func (s Settings) OfProcess() bool {
	return s.GOGC != defaultSettings.GOGC || s.ReturnMemory || s.Gates != ""
}
