package reports

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"synclab/bench"
)

// labelParts are what runs are called by where it tells them apart, the most telling first.
var labelParts = []func(bench.Run) string{
	func(r bench.Run) string { return named("Linux ", r.Versions.Kernel) },
	func(r bench.Run) string { return named("synclab ", r.Versions.Synclab) },
	func(r bench.Run) string { return named("kube-proxy ", r.Versions.KubeProxy) },
	func(r bench.Run) string { return named("iptables ", toolVersion(r.Versions)) },
	func(r bench.Run) string { return named("nft ", plainVersion(r.Versions.Nft)) },
	func(r bench.Run) string { return machineText(r.Machine) },
	func(r bench.Run) string { return r.Machine.OS },
	func(r bench.Run) string { return named("seed ", fmt.Sprint(r.Seed)) },
}

func named(what, value string) string {
	if value == "" {
		return "no " + strings.TrimSpace(what)
	}
	return what + value
}

func toolVersion(v bench.Versions) string {
	legacy, nft := plainVersion(v.IPTablesLegacy), plainVersion(v.IPTablesNft)
	switch {
	case legacy == "" || nft == legacy:
		return nft
	case nft == "":
		return legacy
	}
	return legacy + " and " + nft
}

// cpuNoise is what a processor's name has beside the name.
var cpuNoise = regexp.MustCompile(`\((R|TM|r|tm)\)|\b\d+-Core\b|\b(CPU|Processor)\b|@.*`)

// machineText is a machine in a few words: "32 × Intel Xeon Platinum 8375C".
func machineText(m bench.Machine) string {
	cpu := strings.Join(strings.Fields(cpuNoise.ReplaceAllString(m.CPU, "")), " ")
	if m.CPUs == 0 || cpu == "" {
		return cpu
	}
	return fmt.Sprintf("%d × %s", m.CPUs, cpu)
}

// runLabels names the runs apart, and each as shortly: by kernel, version or machine where these differ, else by their
// id, numbered when two share one.
func runLabels(runs []*loadedRun) []string {
	labels := make([]string, len(runs))
	apart := 1
	for _, part := range labelParts {
		longer := make([]string, len(runs))
		for i, run := range runs {
			longer[i] = part(run.run)
			if labels[i] != "" {
				longer[i] = labels[i] + ", " + longer[i]
			}
		}
		if n := len(distinct(longer)); n > apart {
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
			label := run.run.ID
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

// runsTable says, of several runs, what each label stands for: what they do not share, and where they are. Empty with one.
func (s *Summary) runsTable() pageTable {
	runs := s.collected.runs
	if len(runs) < 2 {
		return pageTable{}
	}
	t := pageTable{Title: "The runs", Note: "What they do not share; the rest is at the foot of the page.",
		Columns: []pageColumn{{Name: "Run"}, {Name: "Folder"}, {Name: "Measured"}, {Name: "Repetitions", Numeric: true}}}
	for _, head := range s.Runs {
		t.Rows = append(t.Rows, []pageCell{{Text: head.Label}, {Text: head.Dir}, {Text: head.Started.Format("2006-01-02 15:04")}, intCell(head.Reps)})
	}
	for _, part := range append(slices.Clone(runParts), runSeed, runFeed) {
		switch part.what {
		case "CPU":
			part = runPart{what: "machine", of: func(r bench.Run) string { return machineText(r.Machine) }}
		case "CPUs":
			continue // the machine's
		}
		var values []string
		for _, run := range runs {
			values = append(values, cmp.Or(part.of(run.run), "–"))
		}
		if len(distinct(values)) < 2 {
			continue
		}
		t.Columns = append(t.Columns, pageColumn{Name: strings.ToUpper(part.what[:1]) + part.what[1:]})
		for i, value := range values {
			t.Rows[i] = append(t.Rows[i], pageCell{Text: value})
		}
	}
	return t
}
