package reports

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"synclab/bench/raw"
	"synclab/reports/export"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// exported is a summary with intervals, positions, several tables, and a swept setting.
func exported(t *testing.T) *sections.Summary {
	t.Helper()
	return buildOf(t, reportstest.Run{ID: "exported", Scenario: "sync-period", Subjects: []reportstest.Subject{reportstest.Legacy, reportstest.NFT}, Sizes: []int{100, 1000},
		Reps: 6, Churn: 60, Probe: 60, Periods: []string{"1s", "5s"}}, t.TempDir(), Options{NoPNG: true})
}

// PerfDash shows an item only if it has all labels, and draws items with the same labels as one line.
func TestPerfDash(t *testing.T) {
	s := exported(t)
	var out bytes.Buffer
	if err := export.PerfDash(&out, s); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Version   string
		DataItems []struct {
			Data   map[string]float64
			Unit   string
			Labels map[string]string
		}
	}
	decoder := json.NewDecoder(&out)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&got); err != nil || got.Version != "v1" || len(got.DataItems) != len(s.Rows) {
		t.Fatalf("%v; version %q, %d items of %d rows", err, got.Version, len(got.DataItems), len(s.Rows))
	}
	seen := map[string]bool{}
	for i, item := range got.DataItems {
		row, factor := s.Rows[i], 1.0
		if row.Unit == "s" {
			factor = 1000
		}
		if isTime := row.Unit == "s"; isTime != (item.Unit == "ms") || len(item.Data) != 3 || item.Labels["metric"] != string(row.Metric) ||
			row.Unit != "ratio" && (item.Data["Perc50"] != row.Median*factor || item.Data["Perc99"] != row.P99*factor || item.Data["Perc90"] != row.P90*factor) {
			t.Errorf("%s in %s: %+v", row.Metric, row.Unit, item)
		}
		for name := range got.DataItems[0].Labels {
			if _, ok := item.Labels[name]; !ok || len(item.Labels) != len(got.DataItems[0].Labels) {
				t.Errorf("%s: labels %v, those of the first item are %v", row.Metric, item.Labels, got.DataItems[0].Labels)
			}
		}
		labels, err := json.Marshal(item.Labels)
		if err != nil || seen[string(labels)] {
			t.Errorf("twice: %s, %v", labels, err)
		}
		seen[string(labels)] = true
	}
}

// The text has the figures of the summary, in base units. A reader of Prometheus' older format finds the same samples.
func TestOpenMetrics(t *testing.T) {
	s := exported(t)
	var out bytes.Buffer
	if err := export.OpenMetrics(&out, s); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"# UNIT synclab_full_sync_seconds seconds\n", "# TYPE synclab_full_sync_ci_low_seconds gauge\n", "# UNIT synclab_restore_bytes bytes\n",
		"# TYPE synclab_rules gauge\n", "# HELP synclab_full_sync_seconds full sync: ", "# UNIT synclab_sync_busy_ratio ratio\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	if !strings.HasSuffix(text, "\n# EOF\n") || strings.Contains(text, "_bytes_bytes") {
		t.Errorf("the end: %q", text[max(0, len(text)-100):])
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	seen, intervals := map[string]bool{}, 0
	for name, f := range families {
		for _, m := range f.Metric {
			key := name + m.String()
			if seen[key] || f.GetType() != dto.MetricType_GAUGE || m.TimestampMs != nil || math.IsNaN(m.Gauge.GetValue()) {
				t.Errorf("twice, no gauge, with a time or not a number: %s", key)
			}
			seen[key] = true
		}
		if strings.Contains(name, "_ci_low") {
			intervals += len(f.Metric)
		}
	}
	samples := 0
	for _, row := range s.Rows {
		if row.Metric == raw.FullSync {
			samples += 3
		}
	}
	if got := len(families["synclab_full_sync_seconds"].GetMetric()); got != samples || samples == 0 || intervals == 0 {
		t.Errorf("%d percentiles of full syncs, want %d; %d intervals", got, samples, intervals)
	}
	row := s.Rows[0]
	if first := families["synclab_"+string(row.Metric)+"_seconds"].Metric[0]; first.Gauge.GetValue() != row.Median {
		t.Errorf("%s: %v, the summary has a median of %g", row.Metric, first, row.Median)
	}
	if start := families["synclab_run_start_time_seconds"].GetMetric(); len(start) != 1 || int64(start[0].Gauge.GetValue()) != s.Runs[0].Started.Unix() {
		t.Errorf("start of the run: %v", start)
	}
}
