package terminal

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/bench"
)

// Elsewhere than on a terminal there is a line at the start, then at most one in ten seconds. Notes always have one.
func TestProgressInLines(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	at := bench.Progress{Subject: "a", Cell: "services=1", Rep: 1, Pass: 1, Passes: 3, Stage: "3:churn", Total: 10}
	p.Show(at)
	note := at
	note.Note = "sync failed"
	p.Show(note)
	at.Done = 1
	p.Show(at)
	p.shown = p.shown.Add(-LineEvery)
	at.Pass, at.Left, at.Figures = 2, 90*time.Second, []bench.Figure{{Name: "reaction", Median: 0.0021}, {Name: "full sync", Median: 1.5}}
	p.Show(at)
	p.End()
	want := "[1/3] a services=1 rep 1: 3:churn, 0 of 10\n[1/3] a services=1 rep 1: sync failed\n" +
		"[2/3] a services=1 rep 1: reaction 2.10 ms, full sync 1.50 s, about 1m30s left\n"
	if got := strings.ReplaceAll(out.String(), "\u00a0", " "); got != want {
		t.Errorf("shown:\n%swant:\n%s", got, want)
	}
}

// Notes before the first repetition have no repetition in their title.
func TestNoteBeforeTheFirstPass(t *testing.T) {
	var out bytes.Buffer
	NewProgress(&out).Show(bench.Progress{Stage: "prepare", Note: "building kube-proxy v1.36.3"})
	if want := "building kube-proxy v1.36.3\n"; out.String() != want {
		t.Errorf("shown: %q, want %q", out.String(), want)
	}
}

// A run until it is precise has no number of repetitions: its bar is the share of the budget.
func TestProgressOfBudget(t *testing.T) {
	p := NewProgress(&bytes.Buffer{})
	p.state.Began = p.state.Began.Add(-time.Minute)
	p.state.ends = p.state.Began.Add(4 * time.Minute)
	p.state.At = bench.Progress{Subject: "a", Cell: "services=1", Rep: 2, Pass: 5, Stage: "3:churn"}
	if head := p.text(100)[0]; !strings.HasPrefix(head, strings.Repeat("█", 6)+"░") || !strings.HasSuffix(head, "number 5  1m0s, at most 3m0s left") {
		t.Errorf("shown: %q", head)
	}
}

// A terminal shows three lines, cut to its width, in place of the earlier ones. A name cannot control it.
func TestProgressOnTerminal(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	p.terminal, p.width = true, func() int { return 70 }
	at := bench.Progress{Subject: "a\x1b[2J", Cell: "services=1", Rep: 1, Pass: 2, Passes: 4, Stage: "3:churn", Done: 5, Total: 10, Left: time.Minute}
	p.Show(at)
	at.Figures = []bench.Figure{{Name: "reaction", Median: 0.0021}}
	p.shown = time.Time{}
	p.Show(at)
	p.mu.Lock()
	lines := p.text(70)
	narrow := p.text(30)
	p.mu.Unlock()
	p.End()
	if len(lines) != 3 || !strings.HasPrefix(lines[0], "█████████░") || !strings.Contains(lines[0], "2 of 4  0s, about 1m0s left") || !strings.Contains(lines[2], "reaction 2.10") {
		t.Errorf("wide: %q", lines)
	}
	if slices.ContainsFunc(narrow, func(line string) bool { return len([]rune(line)) >= 30 }) {
		t.Errorf("narrow: %q", narrow)
	}
	if strings.Contains(out.String(), "\x1b[2J") {
		t.Error("a name cleared the screen")
	}
	if !strings.Contains(out.String(), "\x1b[2A\x1b[J") || !strings.HasSuffix(out.String(), "\x1b[3A\x1b[J") {
		t.Errorf("lines stay: %q", out.String())
	}
}
