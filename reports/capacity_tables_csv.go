package reports

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"strconv"

	"synclab/reports/capacity"
)

// csvFile is a CSV table.
type csvFile struct {
	name, text string
	content    []byte
}

// csvFiles are the numbers of the page, unrounded: seconds, bytes, CPUs and counts.
func (r *capacityReport) csvFiles() ([]csvFile, error) {
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
		w := csv.NewWriter(&b)
		if err := w.WriteAll(f.rows); err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		out = append(out, csvFile{f.name, f.text, b.Bytes()})
	}
	return out, nil
}

// estimateColumns are the columns of every estimate.
var estimateColumns = []string{"median", "low", "high", "basis", "beyond"}

func estimateFields(e capacity.Estimate) []string {
	return []string{exact(e.Median), exact(e.Low), exact(e.High), string(e.Basis), exact(e.Beyond)}
}

func (r *capacityReport) curveRows() [][]string {
	rows := [][]string{append([]string{"subject", "scale", "services", "endpoints_per_service", "nodes", "endpoint_changes_per_s", "quantity", "unit"}, append(estimateColumns, "slo", "met")...)}
	for _, s := range r.Subjects {
		for _, o := range s.Curve {
			add := func(quantity, unit string, e capacity.Estimate, promised, holds string) {
				row := []string{s.Name, exact(o.Scale), strconv.Itoa(o.Cluster.Services), exact(o.Cluster.Endpoints), strconv.Itoa(o.Cluster.Nodes), exact(o.Cluster.Churn.Endpoints), quantity, unit}
				rows = append(rows, append(append(row, estimateFields(e)...), promised, holds))
			}
			for _, p := range promiseTexts {
				if e, ok := o.Quantities[p.name]; ok {
					promised, holds := "", ""
					if b := r.Question.SLOs.Bound(p.name); b > 0 {
						promised, holds = exact(b), verdictOf(o, p.name)
					}
					add(p.name, p.unit, e, promised, holds)
				}
			}
			add("rules", "count", o.Rules, "", "")
			add("full_sync", "s", o.FullSync, "", "")
			add("partial_sync", "s", o.PartialSync, "", "")
		}
	}
	return rows
}

// verdictOf is "yes" (within the limit at the upper bound), "no" (above it at the median) or "perhaps".
func verdictOf(o capacity.Evaluation, name string) string {
	for _, one := range o.Violated {
		if one == name {
			return "no"
		}
	}
	for _, one := range o.Met {
		if one == name {
			return "yes"
		}
	}
	return "perhaps"
}

func (r *capacityReport) frontierRows() [][]string {
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
			row := []string{s.Name, strconv.Itoa(o.Cluster.Services), string(one.Policy.Runner), exact(one.Policy.MinSyncPeriod.Seconds()), strconv.Itoa(one.Policy.Burst),
				exact(o.P50.Seconds()), exact(o.P90.Seconds()), exact(o.P99.Seconds()), exact(o.SlowestP99.Seconds())}
			row = append(append(row, estimateFields(o.Quantities[capacity.ProgrammingP99])...), estimateFields(o.Quantities[capacity.CPU])...)
			rows = append(rows, append(row, exact(o.SyncsPerSecond), exact(o.BusyShare), strconv.FormatBool(one.Met), strconv.FormatBool(one.Policy == s.Recommended.Policy)))
		}
	}
	return rows
}

// reachColumns are the prefixes of the size columns of limits.csv, named like the other columns.
var reachColumns = map[capacity.Unit]string{
	capacity.InServices: "services_", capacity.InEndpoints: "endpoints_per_service_", capacity.InNodes: "nodes_", capacity.InChanges: "changes_per_s_",
}

func (r *capacityReport) limitRows() [][]string {
	header := []string{"subject", "policy", "slo", "bound", "unit", "scale"}
	for _, column := range estimateColumns {
		header = append(header, reachColumns[r.Unit]+column)
	}
	rows := [][]string{append(header, "endpoints_per_service", "nodes", "endpoint_changes_per_s", "never", "unbounded", "why")}
	for _, s := range r.Subjects {
		add := func(policy string, l capacity.Limit) {
			row := append([]string{s.Name, policy, l.SLO, exact(r.Question.SLOs.Bound(l.SLO)), promiseNamed(l.SLO).unit, exact(l.Scale)}, estimateFields(l.Reach)...)
			rows = append(rows, append(row, exact(l.Cluster.Endpoints), strconv.Itoa(l.Cluster.Nodes), exact(l.Cluster.Churn.Endpoints), strconv.FormatBool(l.Never), strconv.FormatBool(l.Unbounded), l.Why))
		}
		for _, l := range s.Limits {
			add("in use", l)
		}
		add("recommended", s.Largest)
	}
	return rows
}
