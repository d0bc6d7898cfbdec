package page

import (
	"bytes"
	"encoding/base64"
	"encoding/csv"
	"html/template"
	"slices"
	"strconv"

	"synclab/reports/capacity"
	"synclab/reports/doc"
)

// csvFile is a CSV table, and its description.
type csvFile struct {
	name, text string
	content    []byte
}

// download is a file within the page.
type download struct {
	Name, Text string
	URL        template.URL
}

var downloadsTemplate = template.Must(template.New("downloads").Parse(
	`<p class="files">{{range .}}<a href="{{.URL}}" download="{{.Name}}">{{.Name}}</a> <span class="soft">{{.Text}}</span><br>{{end}}</p>
`))

// downloadsHTML links files that the page contains.
func downloadsHTML(files []csvFile) string {
	var all []download
	for _, f := range files {
		all = append(all, download{f.name, f.text,
			template.URL("data:text/csv;charset=utf-8;base64," + base64.StdEncoding.EncodeToString(f.content))}) //nolint:gosec // written by this package
	}
	return markup(downloadsTemplate, all)
}

// csvFiles are the numbers of the page, unrounded: seconds, bytes, CPUs and counts.
func (r *report) csvFiles() []csvFile {
	files := []struct {
		name, text string
		rows       [][]string
	}{
		{"capacity.csv", "every quantity of every subject at every size of the curves, with its interval and basis", r.curveRows()},
		{"frontier.csv", "every evaluated setting", r.frontierRows()},
		{"limits.csv", "the largest cluster for each SLO", r.limitRows()},
	}
	var out []csvFile
	for _, f := range files {
		var b bytes.Buffer
		for _, row := range f.rows {
			for i := range row {
				row[i] = doc.CSVCell(doc.Visible(row[i]))
			}
		}
		_ = csv.NewWriter(&b).WriteAll(f.rows) // a buffer takes everything
		out = append(out, csvFile{f.name, f.text, b.Bytes()})
	}
	return out
}

// estimateColumns are the columns of every estimate.
var estimateColumns = []string{"median", "low", "high", "basis", "beyond"}

func estimateFields(e capacity.Estimate) []string {
	return []string{doc.Exact(e.Median), doc.Exact(e.Low), doc.Exact(e.High), string(e.Basis), doc.Exact(e.Beyond)}
}

func (r *report) curveRows() [][]string {
	header := append([]string{"subject", "scale", "services", "endpoints_per_service", "nodes", "endpoint_changes_per_s", "quantity", "unit"}, estimateColumns...)
	rows := [][]string{append(header, "slo", "met")}
	for _, s := range r.Subjects {
		for _, o := range s.Curve {
			add := func(quantity, unit string, e capacity.Estimate, bound, met string) {
				row := []string{s.Name, doc.Exact(o.Scale), strconv.Itoa(o.Cluster.Services), doc.Exact(o.Cluster.Endpoints), strconv.Itoa(o.Cluster.Nodes),
					doc.Exact(o.Cluster.Churn.Endpoints), quantity, unit}
				rows = append(rows, append(append(row, estimateFields(e)...), bound, met))
			}
			for _, q := range sloQuantities {
				if e, ok := o.Quantities[q.name]; ok {
					bound, met := "", ""
					if b := r.Question.SLOs.Bound(q.name); b > 0 {
						bound, met = doc.Exact(b), metText(o, q.name)
					}
					add(q.name, q.unit, e, bound, met)
				}
			}
			add("rules", "count", o.Rules, "", "")
			add("full_sync", "s", o.FullSync, "", "")
			add("partial_sync", "s", o.PartialSync, "", "")
		}
	}
	return rows
}

// metText states whether an SLO is met: "yes" (by the upper bound), "no" (not by the median) or "perhaps".
func metText(o capacity.Evaluation, name string) string {
	switch {
	case slices.Contains(o.Violated, name):
		return "no"
	case slices.Contains(o.Met, name):
		return "yes"
	}
	return "perhaps"
}

func (r *report) frontierRows() [][]string {
	header := []string{"subject", "services", "policy", "min_sync_period_s", "burst", "p50_s", "p90_s", "p99_s", "slowest_node_p99_s"}
	for _, quantity := range []string{capacity.ProgrammingP99, capacity.CPU} {
		for _, column := range estimateColumns {
			header = append(header, quantity+"_"+column)
		}
	}
	rows := [][]string{append(header, "syncs_per_s", "busy_share", "met", "recommended")}
	for _, s := range r.Subjects {
		for _, one := range s.Frontier {
			o := one.Outlook
			row := []string{s.Name, strconv.Itoa(o.Cluster.Services), string(one.Policy.Runner), doc.Exact(one.Policy.MinSyncPeriod.Seconds()),
				strconv.Itoa(one.Policy.Burst), doc.Exact(o.P50.Seconds()), doc.Exact(o.P90.Seconds()), doc.Exact(o.P99.Seconds()), doc.Exact(o.SlowestP99.Seconds())}
			row = append(append(row, estimateFields(o.Quantities[capacity.ProgrammingP99])...), estimateFields(o.Quantities[capacity.CPU])...)
			rows = append(rows, append(row, doc.Exact(o.SyncsPerSecond), doc.Exact(o.BusyShare), strconv.FormatBool(one.Met),
				strconv.FormatBool(one.Policy == s.Recommended.Policy)))
		}
	}
	return rows
}

// sizeColumns are the prefixes of the size columns of limits.csv, named like the other columns.
var sizeColumns = map[capacity.Unit]string{
	capacity.InServices: "services_", capacity.InEndpoints: "endpoints_per_service_", capacity.InNodes: "nodes_", capacity.InChanges: "changes_per_s_",
}

func (r *report) limitRows() [][]string {
	header := []string{"subject", "policy", "slo", "bound", "unit", "scale"}
	for _, column := range estimateColumns {
		header = append(header, sizeColumns[r.Unit]+column)
	}
	rows := [][]string{append(header, "endpoints_per_service", "nodes", "endpoint_changes_per_s", "never", "unbounded", "why")}
	for _, s := range r.Subjects {
		add := func(policy string, l capacity.Limit) {
			row := append([]string{s.Name, policy, l.SLO, doc.Exact(r.Question.SLOs.Bound(l.SLO)), sloNamed(l.SLO).unit, doc.Exact(l.Scale)}, estimateFields(l.Size)...)
			rows = append(rows, append(row, doc.Exact(l.Cluster.Endpoints), strconv.Itoa(l.Cluster.Nodes), doc.Exact(l.Cluster.Churn.Endpoints),
				strconv.FormatBool(l.Never), strconv.FormatBool(l.Unbounded), l.Why))
		}
		for _, l := range s.Limits {
			add("in use", l)
		}
		add("recommended", s.Largest)
	}
	return rows
}
