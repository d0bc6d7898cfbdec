package raw

import (
	"slices"
	"testing"
)

// TestTable: each metric has a known unit and group, a text of its own, and one row.
func TestTable(t *testing.T) {
	texts := map[string]Metric{}
	for i, r := range table {
		if r.Metric.Order() != i {
			t.Errorf("%s has two rows", r.Metric)
		}
		if r.Metric != Exceeded && !slices.Contains([]string{"s", "B", "count", "ratio"}, r.Unit) {
			t.Errorf("%s: unit %q", r.Metric, r.Unit)
		}
		if !slices.Contains(Groups, r.Group) {
			t.Errorf("%s: group %q", r.Metric, r.Group)
		}
		if other, taken := texts[r.Text]; r.Text == "" || taken {
			t.Errorf("%s has the text of %s: %q", r.Metric, other, r.Text)
		}
		texts[r.Text] = r.Metric
	}
	if unknown := Metric("jitter_of_x").Row(); unknown.Text != "jitter of x" || unknown.Metric.Order() != len(table) {
		t.Errorf("an unknown metric: %+v", unknown)
	}
}
