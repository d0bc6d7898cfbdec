package export

import (
	"io"
	"regexp"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"synclab/reports/sections"
)

// openMetricsUnits are base units of Prometheus. Counts have none.
var openMetricsUnits = map[string]string{"s": "seconds", "B": "bytes", "ratio": "ratio"}

var noMetricName = regexp.MustCompile(`[^a-zA-Z0-9_]`)

// OpenMetrics writes three families for each metric: its percentiles, and the ends of the 95 % interval of those
// that have one. All are gauges, since the percentiles are medians of the repetitions'. The text is valid in Prometheus'
// older format too: units and the end are comments there. Samples have no time, since node_exporter refuses those.
func OpenMetrics(w io.Writer, s *sections.Summary) error {
	families := runFamilies(s)
	at := map[string]*dto.MetricFamily{}
	gauge := func(r sections.Row, part, help string) *dto.MetricFamily {
		unit := openMetricsUnits[r.Unit]
		name := "synclab_" + noMetricName.ReplaceAllString(strings.TrimSuffix(string(r.Metric), "_"+unit), "_") + part
		if unit != "" {
			name += "_" + unit
		}
		if at[name] == nil {
			at[name] = family(name, unit, strings.TrimSpace(r.Metric.Row().Text+help))
			families = append(families, at[name])
		}
		return at[name]
	}
	for _, r := range s.Rows {
		all := gauge(r, "", ": median over the repetitions of their percentiles")
		low, high := gauge(r, "_ci_low", ": low end of the percentile's 95 % interval"), gauge(r, "_ci_high", ": high end of the percentile's 95 % interval")
		for _, q := range []struct {
			percentile string // a label quantile is only for summaries, which also have a sum
			value      float64
			low, high  *float64
		}{{"50", r.Median, r.Low, r.High}, {"90", r.P90, nil, nil}, {"99", r.P99, r.P99Low, r.P99High}} {
			of := append(labels(r), label{"percentile", q.percentile})
			add(all, q.value, of)
			if q.low != nil && q.high != nil {
				add(low, *q.low, of)
				add(high, *q.high, of)
			}
		}
	}
	for _, f := range families {
		if len(f.Metric) == 0 {
			continue
		}
		if _, err := expfmt.MetricFamilyToOpenMetrics(w, f); err != nil {
			return err
		}
	}
	_, err := expfmt.FinalizeOpenMetrics(w)
	return err
}

// runFamilies says when each run began, and what it ran on.
func runFamilies(s *sections.Summary) []*dto.MetricFamily {
	f := family("synclab_run_start_time_seconds", "seconds", "start of a run since 1970")
	for _, run := range s.Runs {
		add(f, float64(run.Started.UnixMilli())/1000, []label{{"run", run.Dir}, {"scenario", run.Scenario}, {"status", run.Status},
			{"version", run.Versions.Synclab}, {"kernel", run.Versions.Kernel}})
	}
	return []*dto.MetricFamily{f}
}

func family(name, unit, help string) *dto.MetricFamily {
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: dto.MetricType_GAUGE.Enum()}
	if unit != "" {
		f.Unit = &unit
	}
	return f
}

// add appends a sample. An empty label is the same as none.
func add(f *dto.MetricFamily, value float64, of []label) {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &value}}
	for _, l := range of {
		if l.value != "" {
			m.Label = append(m.Label, &dto.LabelPair{Name: &l.name, Value: &l.value})
		}
	}
	f.Metric = append(f.Metric, m)
}
