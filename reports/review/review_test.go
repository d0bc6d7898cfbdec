package review

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"synclab/reports/comparison"
	"synclab/reports/diff"
	"synclab/reports/profiles"
	"synclab/reports/reportstest"
)

// reviewed is the review of a head whose syncs take times as long.
func reviewed(t *testing.T, times float64, checks ...Check) *Review {
	t.Helper()
	base, head := reportstest.Legacy, reportstest.Legacy
	base.Name, head.Name = "kube-proxy@v1.36.3/iptables-legacy", "kube-proxy@v1.37.2/iptables-legacy"
	head.Base *= times
	dir := filepath.Join(t.TempDir(), "run")
	reportstest.Run{Scenario: "pull-request", Subjects: []reportstest.Subject{base, head}, Sizes: []int{1000, 4000}, Reps: 10, Churn: 60, Outside: true}.Write(t, dir)
	primary := Primary(4000)
	measured, err := diff.Compare(dir, dir, diff.Options{OneRun: true, Pairs: [][2]string{{base.Name, head.Name}}, Primary: primary})
	if err != nil {
		t.Fatal(err)
	}
	return &Review{Program: "kube-proxy", Base: "v1.36.3", Head: "v1.37.2", Measured: measured, Checks: checks, Command: "synclab pr", Primary: primary}
}

func TestVerdict(t *testing.T) {
	same := Check{What: "rules", Result: "100 states, 0 differences"}
	for _, c := range []struct {
		name  string
		times float64
		check Check
		bad   bool
		want  []string
	}{
		{"slower", 1.5, same, true, []string{"The head costs more: kube-proxy@v1.37.2/iptables-legacy at 4,000 Services × 10: cold start 1.", "Both do the same"}},
		{"faster", 0.5, same, false, []string{"The head costs less: ", "cold start 0.5"}},
		{"equal", 1, same, false, []string{"No difference is shown in the main figures"}},
		{"other rules", 1, Check{What: "rules", Result: "3 differences", Differs: true}, true, []string{"Differs: rules: 3 differences"}},
		{"not compared", 1, Check{What: "rules", Result: "it crashed", Failed: true}, false, []string{"Not compared: rules: it crashed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := reviewed(t, c.times, c.check)
			var b bytes.Buffer
			if err := r.Markdown(&b); err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(b.String(), "`", "")
			for _, want := range append(c.want, "kube-proxy: v1.37.2 against v1.36.3", "synclab pr", "kernel: 6.18.0", c.check.Result) {
				if !strings.Contains(text, want) {
					t.Errorf("the comment lacks %q:\n%.3000s", want, text)
				}
			}
			if r.Bad() != c.bad {
				t.Errorf("bad is %t", r.Bad())
			}
			if strings.Contains(text, "Both do the same") && (c.check.Differs || c.check.Failed) {
				t.Error("says that both do the same")
			}
		})
	}
}

// A figure beyond its threshold fails the command, so the verdict names it also where it is none of the main ones.
func TestOthersBeyond(t *testing.T) {
	r := reviewed(t, 1)
	for i := range r.Measured.Rows {
		if row := &r.Measured.Rows[i]; row.Figure == "rules" && row.Cell.Services == 1000 {
			row.Beyond = true
		}
	}
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	want := "Beyond the threshold, of the other figures: kube-proxy@v1.37.2/iptables-legacy at 1,000 Services × 10: rules"
	if text := strings.Join(strings.Fields(b.String()), " "); !r.Bad() || !strings.Contains(text, want) || strings.Contains(text, "--reps") {
		t.Errorf("bad is %t:\n%.2000s", r.Bad(), text)
	}
}

// A profile is of one repetition. Where its syncs took another time than the measured ones, the review says so.
func TestProfileOfAnUntypicalSync(t *testing.T) {
	r := reviewed(t, 1)
	for _, row := range r.Measured.Rows {
		if row.Figure != comparison.FigureFull || row.Cell.Services != 4000 {
			continue
		}
		for _, times := range []float64{1.1, 2} {
			r.Moved = []profiles.Moved{{After: row.Subject, Cell: row.Cell, Kind: profiles.Kinds[1], Totals: [2]float64{row.Before.Value, times * row.After.Value},
				Functions: []profiles.MovedFunction{{Name: "search"}}}}
			var b bytes.Buffer
			if err := r.Markdown(&b); err != nil {
				t.Fatal(err)
			}
			if says := strings.Contains(b.String(), "not a typical sync"); says != (times > 1.25) {
				t.Errorf("a profile of %g times the measured time: says so is %t", times, says)
			}
		}
		return
	}
	t.Fatal("no full sync was measured")
}
