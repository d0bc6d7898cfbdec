package records

import (
	"fmt"
	"strings"

	"synclab/bench/raw"
)

// labelParts are the possible parts of run labels, the best first. Labels use only parts that differ between runs.
var labelParts = []func(raw.Run) string{
	func(r raw.Run) string { return named("Linux ", r.Versions.Kernel) },
	func(r raw.Run) string { return named("synclab ", r.Versions.Synclab) },
	func(r raw.Run) string { return named("kube-proxy ", r.Versions.KubeProxy) },
	func(r raw.Run) string { return named("iptables ", toolVersion(r.Versions)) },
	func(r raw.Run) string { return named("nft ", plainVersion(r.Versions.Nft)) },
	func(r raw.Run) string { return MachineText(r.Machine) },
	func(r raw.Run) string { return r.Machine.OS },
	func(r raw.Run) string { return named("seed ", fmt.Sprint(r.Seed)) },
}

func named(what, value string) string {
	if value == "" {
		return "no " + strings.TrimSpace(what)
	}
	return what + value
}

func toolVersion(v raw.Versions) string {
	legacy, nft := plainVersion(v.IPTablesLegacy), plainVersion(v.IPTablesNft)
	switch {
	case legacy == "" || nft == legacy:
		return nft
	case nft == "":
		return legacy
	}
	return legacy + " and " + nft
}

// MachineText names a machine by its CPUs: "32 × AMD EPYC 7763 64-Core Processor".
func MachineText(m raw.Machine) string {
	if m.CPUs == 0 || m.CPU == "" {
		return m.CPU
	}
	return fmt.Sprintf("%d × %s", m.CPUs, m.CPU)
}

// RunLabels gives each run a short unique label: kernel, version or machine if these differ, else the run's id.
// Runs with the same label are numbered.
func RunLabels(runs []*Run) []string {
	labels := make([]string, len(runs))
	apart := 1
	for _, part := range labelParts {
		longer := make([]string, len(runs))
		for i, run := range runs {
			longer[i] = part(run.Info)
			if labels[i] != "" {
				longer[i] = labels[i] + ", " + longer[i]
			}
		}
		if n := len(Distinct(longer)); n > apart {
			labels, apart = longer, n
		}
	}
	shared := map[string]int{}
	for _, label := range labels {
		shared[label]++
	}
	used := map[string]int{}
	for i, run := range runs {
		if shared[labels[i]] > 1 || labels[i] == "" {
			label := run.Info.ID
			if labels[i] != "" {
				label = labels[i] + ", " + label
			}
			labels[i] = label
		}
		used[labels[i]]++
		if n := used[labels[i]]; n > 1 {
			labels[i] = fmt.Sprintf("%s #%d", labels[i], n)
		}
	}
	return labels
}
