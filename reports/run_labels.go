package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/doc"
)

// labelParts are the possible parts of run labels, the best first. Labels use only parts that differ between runs.
var labelParts = []func(raw.Run) string{
	func(r raw.Run) string { return named("Linux ", r.Versions.Kernel) },
	func(r raw.Run) string { return named("synclab ", r.Versions.Synclab) },
	func(r raw.Run) string { return named("kube-proxy ", r.Versions.KubeProxy) },
	func(r raw.Run) string { return named("iptables ", toolVersion(r.Versions)) },
	func(r raw.Run) string { return named("nft ", plainVersion(r.Versions.Nft)) },
	func(r raw.Run) string { return machineText(r.Machine) },
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

// machineText names a machine by its CPUs: "32 × AMD EPYC 7763 64-Core Processor".
func machineText(m raw.Machine) string {
	if m.CPUs == 0 || m.CPU == "" {
		return m.CPU
	}
	return fmt.Sprintf("%d × %s", m.CPUs, m.CPU)
}

// runLabels gives each run a short unique label: kernel, version or machine if these differ, else the run's id.
// Runs with the same label are numbered.
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

// runsTable explains the labels of several runs: their differences and folders. It is empty for one run.
func (s *Summary) runsTable() *doc.Table {
	runs := s.collected.runs
	if len(runs) < 2 {
		return nil
	}
	t := &doc.Table{Title: "The runs", Note: "This table has only the differences between the runs. The end of the page has all their properties.",
		Columns: []doc.Column{{Name: "Run"}, {Name: "Folder"}, {Name: "Measured"}, {Name: "Repetitions", Numeric: true}}}
	for _, head := range s.Runs {
		t.Add(doc.Text(head.Label), doc.Text(head.Dir), doc.Text(head.Started.Format("2006-01-02 15:04")), doc.Int(head.Reps))
	}
	for _, part := range append(slices.Clone(runParts), runSeed, runFeed) {
		switch part.what {
		case "CPU":
			part = runPart{what: "machine", of: func(r raw.Run) string { return machineText(r.Machine) }}
		case "CPUs":
			continue // part of machine
		}
		var values []string
		for _, run := range runs {
			values = append(values, cmp.Or(part.of(run.run), "–"))
		}
		if len(distinct(values)) < 2 {
			continue
		}
		t.Columns = append(t.Columns, doc.Column{Name: doc.UpperFirst(part.what)})
		for i, value := range values {
			t.Rows[i] = append(t.Rows[i], doc.Text(value))
		}
	}
	return t
}
