package records

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
)

// RunPart is a property that a run's numbers depend on.
type RunPart struct {
	What     string
	Compared bool // the usual reason to compare runs
	Of       func(raw.Run) string
}

var (
	RunSeed     = RunPart{"seed", false, func(r raw.Run) string { return fmt.Sprint(r.Seed) }}
	RunObserved = RunPart{"observed", false, func(r raw.Run) string { return ObservedBy(r.Feed, r.Observed) }}
	RunFeed     = RunPart{"feed", false, func(r raw.Run) string { return cmp.Or(r.Feed, raw.FeedInformers) }}
)

// ObservedBy is the source of the time when a change was visible: the kernel or, in older runs with informers, the
// subject's syncs.
func ObservedBy(feed, observed string) string {
	if observed == "" && feed != raw.FeedAPI {
		return "syncs"
	}
	return raw.ObservedKernel
}

// RunParts are the conditions that a run's numbers depend on. Those that best name a run come first.
var RunParts = []RunPart{
	{"kernel", false, func(r raw.Run) string { return r.Versions.Kernel }},
	{"synclab", true, func(r raw.Run) string { return r.Versions.Synclab }},
	{"kube-proxy", true, func(r raw.Run) string { return r.Versions.KubeProxy }},
	{"Cilium", true, func(r raw.Run) string { return r.Versions.Cilium }},
	{"iptables-legacy", false, func(r raw.Run) string { return plainVersion(r.Versions.IPTablesLegacy) }},
	{"iptables-nft", false, func(r raw.Run) string { return plainVersion(r.Versions.IPTablesNft) }},
	{"nft", false, func(r raw.Run) string { return plainVersion(r.Versions.Nft) }},
	{"CPU", false, func(r raw.Run) string { return r.Machine.CPU }},
	{"CPUs", false, func(r raw.Run) string { return numberOf(float64(r.Machine.CPUs), "count") }},
	{"memory", false, func(r raw.Run) string { return numberOf(float64(r.Machine.MemoryBytes), "B") }},
	{"OS", false, func(r raw.Run) string { return r.Machine.OS }},
	{"Go", false, func(r raw.Run) string { return r.Versions.Go }},
	{"user", false, func(r raw.Run) string {
		if r.Machine.UserNamespace {
			return "ordinary"
		}
		return "root"
	}},
}

func numberOf(v float64, unit string) string {
	if v == 0 {
		return ""
	}
	return doc.Format(v, unit)
}

// plainVersion extracts the version from a tool's output, such as "iptables v1.8.9 (legacy)".
func plainVersion(text string) string {
	words := strings.Fields(text)
	i := slices.IndexFunc(words, func(w string) bool { return len(w) > 1 && w[0] == 'v' && w[1] >= '0' && w[1] <= '9' })
	if i < 0 {
		return text
	}
	return words[i]
}
