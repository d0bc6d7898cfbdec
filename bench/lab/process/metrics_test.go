package process

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	syncs := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: syncFull, Buckets: []float64{1, 2}}, []string{familyLabel})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failures_total"}, []string{familyLabel})
	registry.MustRegister(syncs, failures)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()

	var seen Syncs
	syncs.WithLabelValues("IPv4").Observe(1.5)
	failures.WithLabelValues("IPv4").Add(2)
	failures.WithLabelValues("IPv6").Add(3)
	samples, err := Metrics(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	want := []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 1500 * time.Millisecond}}
	if got := seen.Next(samples); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if v, ok := samples.Value("failures_total"); v != 5 || !ok {
		t.Errorf("failures %v, %v", v, ok)
	}
	if v, ok := samples.Value("failures_total", familyLabel, "IPv6"); v != 3 || !ok {
		t.Errorf("failures of IPv6 %v, %v", v, ok)
	}
	if _, ok := samples.Value("no_such_metric"); ok {
		t.Error("a missing metric has a value")
	}
}

func TestMetricsErrors(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer http.HandlerFunc
		want   string
	}{
		{"status", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, "503"},
		{"text", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "<html>") }, "invalid metric name"},
		{"no end", func(w http.ResponseWriter, r *http.Request) {
			for i := 0; r.Context().Err() == nil; i++ {
				if _, err := fmt.Fprintf(w, "m%d_total 1\n", i); err != nil {
					return
				}
			}
		}, "more than 4 MiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			if _, err := Metrics(t.Context(), server.URL); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	if _, err := Metrics(t.Context(), "http://127.0.0.1:1/metrics"); err == nil {
		t.Error("no error without a server")
	}
}

// TestSyncs feeds readings in order; each step lists the syncs since the previous reading.
func TestSyncs(t *testing.T) {
	full := func(family string, n int, sum float64) string { return histogram(syncFull, family, n, sum) }
	partial := func(family string, n int, sum float64) string { return histogram(syncPartial, family, n, sum) }
	total := func(family string, n int, sum float64) string { return histogram(syncTotal, family, n, sum) }
	begun := func(at float64) string { return fmt.Sprintf("# TYPE %s gauge\n%s %g\n", started, started, at) }
	const ms = time.Millisecond
	type step struct {
		text string
		want []Sync
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"kinds and families", []step{
			{"", nil},
			{full("IPv4", 1, 2) + total("IPv4", 1, 2), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 2000 * ms}}},
			{full("IPv4", 1, 2) + total("IPv4", 1, 2), nil},
			{full("IPv4", 1, 2) + partial("IPv4", 3, 0.6) + total("IPv4", 4, 2.6), []Sync{{Kind: Partial, Family: "IPv4", Count: 3, Total: 600 * ms}}},
			{full("IPv4", 2, 5) + partial("IPv4", 4, 0.7) + total("IPv4", 6, 5.7) + full("IPv6", 1, 1),
				[]Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 3000 * ms}, {Kind: Partial, Family: "IPv4", Count: 1, Total: 100 * ms}, {Kind: Full, Family: "IPv6", Count: 1, Total: 1000 * ms}}},
		}},
		{"total alone", []step{
			{total("IPv4", 2, 3), []Sync{{Kind: Either, Family: "IPv4", Count: 2, Total: 3000 * ms}}},
			{total("IPv4", 3, 4), []Sync{{Kind: Either, Family: "IPv4", Count: 1, Total: 1000 * ms}}},
		}},
		{"kinds exposed and never used", []step{
			{total("", 2, 3) + full("", 0, 0) + partial("", 0, 0), []Sync{{Kind: Either, Family: "", Count: 2, Total: 3000 * ms}}},
		}},
		{"restart, counters fall", []step{
			{full("IPv4", 1, 2) + partial("IPv4", 5, 1), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 2000 * ms}, {Kind: Partial, Family: "IPv4", Count: 5, Total: 1000 * ms}}},
			{full("IPv4", 1, 3), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 3000 * ms}}},
			{full("IPv4", 1, 3) + partial("IPv4", 1, 0.1), []Sync{{Kind: Partial, Family: "IPv4", Count: 1, Total: 100 * ms}}},
		}},
		{"failures", []step{
			{full("IPv4", 1, 2) + failed(failedNftables, "IPv4", 1) + failed(failedNftables, "IPv6", 5),
				[]Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 2000 * ms, Failed: 1}}},
			{full("IPv4", 2, 4) + failed(failedNftables, "IPv4", 1), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 2000 * ms}}},
			// A failure is counted some time before its sync.
			{full("IPv4", 2, 4) + failed(failedNftables, "IPv4", 2), nil},
			{full("IPv4", 3, 6) + failed(failedNftables, "IPv4", 2), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 2000 * ms, Failed: 1}}},
		}},
		{"a failed partial restore counts in two", []step{
			{partial("IPv4", 3, 3) + failed(failedIptables, "IPv4", 2) + failed(failedPartial, "IPv4", 2),
				[]Sync{{Kind: Partial, Family: "IPv4", Count: 3, Total: 3000 * ms, Failed: 2}}},
		}},
		{"restart, counters as high as before", []step{
			{begun(100) + full("IPv4", 1, 2), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 2000 * ms}}},
			{begun(100) + full("IPv4", 1, 2), nil},
			{begun(200.5) + full("IPv4", 1, 3), []Sync{{Kind: Full, Family: "IPv4", Count: 1, Total: 3000 * ms}}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen Syncs
			for i, step := range c.steps {
				samples, err := ParseMetrics(strings.NewReader(merge(step.text)))
				if err != nil {
					t.Fatal(err)
				}
				if got := seen.Next(samples); !slices.Equal(got, step.want) {
					t.Errorf("reading %d: got %v, want %v", i, got, step.want)
				}
			}
		})
	}
}

func histogram(name, family string, n int, sum float64) string {
	labels := ""
	if family != "" {
		labels = fmt.Sprintf("{%s=%q}", familyLabel, family)
	}
	return fmt.Sprintf("# TYPE %[1]s histogram\n%[1]s_sum%[2]s %[4]g\n%[1]s_count%[2]s %[3]d\n", name, labels, n, sum)
}

func failed(name, family string, n int) string {
	return fmt.Sprintf("# TYPE %[1]s counter\n%[1]s{%s=%q} %d\n", name, familyLabel, family, n)
}

// merge keeps one TYPE line for each metric, as the format requires, and groups the lines of a metric.
func merge(text string) string {
	var order []string
	lines := map[string][]string{}
	name := ""
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "# TYPE ") {
			if name = line; lines[name] == nil {
				order = append(order, name)
				lines[name] = []string{name}
			}
			continue
		}
		lines[name] = append(lines[name], line)
	}
	var b strings.Builder
	for _, name := range order {
		b.WriteString(strings.Join(lines[name], ""))
	}
	return b.String()
}
