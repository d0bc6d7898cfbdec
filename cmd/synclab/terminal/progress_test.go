package terminal

import (
	"bytes"
	"testing"
	"time"

	"synclab/bench"
)

// A note is a separate line and does not end the stage: the time left counts from the stage's start.
func TestNoteKeepsTheStage(t *testing.T) {
	var out bytes.Buffer
	p := NewProgress(&out)
	at := bench.Progress{Subject: "a", Cell: "services=1", Rep: 1, Pass: 1, Passes: 1, Stage: "3:churn", Total: 10}
	p.Show(at)
	p.began = p.began.Add(-time.Hour)
	began := p.began
	note := at
	note.Note = "sync failed"
	p.Show(note)
	at.Done = 1
	p.Show(at)
	if !p.began.Equal(began) {
		t.Errorf("the stage began %v later after a note", p.began.Sub(began))
	}
	want := "[1/1] a services=1 rep 1: 3:churn\n[1/1] a services=1 rep 1: sync failed\n"
	if out.String() != want {
		t.Errorf("shown:\n%swant:\n%s", out.String(), want)
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
