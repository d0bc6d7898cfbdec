package index

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/reports/reportstest"
)

const summary = `{"title": "steady-churn: 300 Services", "verdict": [{"level": "bad", "text": "A is saturated."}],
"runs": [{"started": "2026-03-0%DT10:00:00Z", "status": "complete", "scenario": "steady-churn", "subjects": ["synclab/nftables"], "reps": 3}],
"rows": [{"series": "synclab/nftables", "metric": "reaction", "cell": {"services": 300}, "median": 0.00%D}, {"series": "other", "metric": "reaction", "cell": {"services": 900}, "median": 9}]}`

func TestDocument(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Document(dir); err == nil || !strings.Contains(err.Error(), "no run with a report") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, day := range []string{"1", "3", "2"} {
		write("run"+day+"/summary.json", strings.ReplaceAll(summary, "%D", day))
	}
	write("broken/summary.json", "{")
	write("bare/run.json", "{}")
	write("notes/x.txt", "")
	d, err := Document(dir)
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := d.Page(&page); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(page.String(), "\u00a0", " ")
	at := 0
	for _, want := range []string{`<a href="run3/index.html">run3</a>`, "✗ A is saturated.", "3.00 ms", "reaction of synclab/nftables at 300 Services", "<svg", `<a href="run2/index.html">`, `<a href="run1/index.html">`, "<li>bare</li>", "<li>broken</li>"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing or too early", want)
		}
		at += i
	}
	if n := strings.Count(text, `class="spark"`); n != 2 {
		t.Errorf("%d sparklines, want 2: one value has none", n)
	}
	t.Run("access", func(t *testing.T) { reportstest.CheckAccess(t, page.Bytes()) })
}
