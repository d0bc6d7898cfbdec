package atlas

import (
	"path/filepath"
	"strings"
	"testing"

	"synclab/reports/reportstest"
)

// Subjects are columns, kube-proxies first, and a size is a row, also of two runs. A stopped subject has a bound.
func TestAtlas(t *testing.T) {
	dir := t.TempDir()
	large, small := reportstest.FiveSizes(), reportstest.Five
	small.Sizes, small.Reps, small.ID = []int{100}, 3, "few"
	var dirs []string
	for name, y := range map[string]reportstest.Run{"large": large, "few": small} {
		y.Write(t, filepath.Join(dir, name))
	}
	for _, name := range []string{"few", "large"} {
		dirs = append(dirs, filepath.Join(dir, name))
	}
	d, err := Of(dirs)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := d.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"### How long does a start take?",
		"| figure | services × endpoints | kube-proxy/iptables-legacy | kube-proxy/iptables-nft | kube-proxy/nftables | synclab/iptables-legacy | synclab/iptables-nft | run |",
		"| Cold start | 100 × 10 |", "| Cold start | 8,000 × 10, size-sweep |", "> 600 s", "±", "| few |", "| large |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if few := line(text, "| Cold start | 100 × 10 |"); !strings.Contains(few, "–") || strings.Contains(few, "±") {
		t.Errorf("an interval of three repetitions: %s", few)
	}
	if strings.Contains(text, "connections?") {
		t.Error("a question that no run answers")
	}
}

func line(text, prefix string) string {
	_, rest, _ := strings.Cut(text, prefix)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}
