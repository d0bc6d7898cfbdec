package process

import (
	"context"
	"fmt"
	"io"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Samples is one reading of a process's metrics, by name.
type Samples map[string]*dto.MetricFamily

// metricsBytes bounds a reading, which takes some 40 times as much memory: kube-proxy's metrics are some hundred KiB.
const metricsBytes = 4 << 20

// Metrics reads the metrics of a process. It does not use http.DefaultClient, which would use the proxies in the
// environment.
func Metrics(ctx context.Context, url string) (Samples, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	req.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeTextPlain)))
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("metrics: %s: %s", url, resp.Status)
	}
	body := &io.LimitedReader{R: resp.Body, N: metricsBytes + 1}
	samples, err := ParseMetrics(body)
	if body.N == 0 {
		return nil, fmt.Errorf("metrics: %s: more than %d MiB", url, metricsBytes>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("metrics: %s: %w", url, err)
	}
	return samples, nil
}

// client does not request compression, which would cost the subject CPU time.
var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, DisableCompression: true}}

// ParseMetrics parses the Prometheus text format.
func ParseMetrics(r io.Reader) (Samples, error) {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(r)
}

// Value returns the sum of a counter, gauge or untyped metric over the series with these labels ("name", "value", …);
// false if there are none.
func (s Samples) Value(name string, labels ...string) (float64, bool) {
	sum, found := 0.0, false
	for _, m := range s[name].GetMetric() {
		if !labelled(m, labels) {
			continue
		}
		switch {
		case m.Counter != nil:
			sum += m.Counter.GetValue()
		case m.Gauge != nil:
			sum += m.Gauge.GetValue()
		case m.Untyped != nil:
			sum += m.Untyped.GetValue()
		default:
			continue
		}
		found = true
	}
	return sum, found
}

func labelled(m *dto.Metric, pairs []string) bool {
	for i := 0; i+1 < len(pairs); i += 2 {
		if label(m, pairs[i]) != pairs[i+1] {
			return false
		}
	}
	return true
}

func label(m *dto.Metric, name string) string {
	for _, pair := range m.GetLabel() {
		if pair.GetName() == name {
			return pair.GetValue()
		}
	}
	return ""
}
