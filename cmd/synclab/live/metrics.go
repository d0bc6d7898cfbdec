package live

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"synclab/cmd/synclab/terminal"
)

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("synclab_run_"+name, help, labels, nil)
}

// The metrics of a run. None has the repetition as a label: a long run would leave thousands of series.
var (
	start       = describe("start_time_seconds", "Start of the run since 1970.", "scenario")
	repetitions = describe("repetitions", "Repetitions of the run, of all cells and subjects. Absent if unknown.")
	ended       = describe("repetitions_ended", "Repetitions that ended.")
	progress    = describe("progress_ratio", "Share of the run that is done. Absent if unknown.")
	timeLeft    = describe("time_left_seconds", "Estimated time until the end of the run. Absent if unknown.")
	step        = describe("step_info", "The step that runs now, and its subject and cell: always 1.", "subject", "cell", "step")
	stepDone    = describe("step_ratio", "Share of the step that is done. Absent if unknown.")
	figure      = describe("figure_seconds", "Median of a metric in one repetition, of the latest that ended of a subject and cell.", "subject", "cell", "figure")
	figureReps  = describe("figure_repetitions_total", "Repetitions of a subject and cell that ended with figures.", "subject", "cell")
	noted       = describe("notes_total", "Notes, such as failed syncs.")
)

// Describe implements prometheus.Collector.
func (s *Server) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, to) }

// Collect implements prometheus.Collector: the state at the time of a scrape.
func (s *Server) Collect(to chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) {
		for i, l := range labels {
			labels[i] = strings.ToValidUTF8(l, "\uFFFD") // the library panics at others, and a name may come from the command line
		}
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		send(d, prometheus.GaugeValue, value, labels)
	}
	counter := func(d *prometheus.Desc, value int, labels ...string) {
		send(d, prometheus.CounterValue, float64(value), labels)
	}
	at := s.run.At
	gauge(start, float64(s.run.Began.UnixMilli())/1000, s.title)
	gauge(ended, float64(s.ended))
	if at.Passes > 0 {
		gauge(repetitions, float64(at.Passes))
		gauge(progress, s.run.Share())
	}
	if left, ok := s.run.Left(); ok {
		gauge(timeLeft, left.Seconds())
	}
	if at.Stage != "" {
		gauge(step, 1, at.Subject, at.Cell, at.Stage)
	}
	if at.Total > 0 {
		gauge(stepDone, terminal.StepShare(at))
	}
	for _, r := range s.rows {
		counter(figureReps, r.ended, r.subject, r.cell)
		for _, all := range r.figures {
			latest := all[len(all)-1]
			gauge(figure, latest.Median, r.subject, r.cell, string(latest.Metric))
		}
	}
	counter(noted, s.noted)
}
