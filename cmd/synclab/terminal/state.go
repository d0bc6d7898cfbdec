package terminal

import (
	"fmt"
	"strings"
	"time"

	"synclab/bench"
)

// State is how far a run is, from the events of its progress.
type State struct {
	Began time.Time
	At    bench.Progress // the last event that is no note

	ends time.Time // estimated; zero: unknown
}

// Take takes an event that is no note.
func (s *State) Take(at bench.Progress) {
	if at.Left > 0 && (at.Pass != s.At.Pass || s.ends.IsZero()) {
		s.ends = time.Now().Add(at.Left)
	}
	s.At = at
}

// Left is the estimate of the time left; ok is false if it is unknown or used up.
func (s *State) Left() (left time.Duration, ok bool) {
	left = time.Until(s.ends)
	return left, !s.ends.IsZero() && left >= 0
}

// Share is how much of the run is done; if its number of repetitions is unknown, how much of its time. 0: neither is known.
func (s *State) Share() float64 {
	switch {
	case s.At.Passes == 0 && s.ends.IsZero():
		return 0
	case s.At.Passes == 0:
		return float64(time.Since(s.Began)) / float64(s.ends.Sub(s.Began))
	}
	return (float64(s.At.Pass-1) + StepShare(s.At)) / float64(s.At.Passes)
}

// Count is the number of the current repetition.
func (s *State) Count() string {
	switch {
	case s.At.Passes > 0:
		return fmt.Sprintf("%d of %d", s.At.Pass, s.At.Passes)
	case s.At.Pass > 0:
		return fmt.Sprintf("number %d", s.At.Pass)
	}
	return "preparing"
}

// StepShare is how much of the current step is done; 0 if that is unknown.
func StepShare(at bench.Progress) float64 {
	if at.Total == 0 {
		return 0
	}
	return float64(at.Done) / float64(at.Total)
}

// Step is the current step, and how much of it is done.
func Step(at bench.Progress) string {
	if at.Total > 0 {
		return fmt.Sprintf("%s, %d of %d", at.Stage, at.Done, at.Total)
	}
	return at.Stage
}

// NoteLine is an event's note, and the repetition that it belongs to.
func NoteLine(at bench.Progress) string { return title(at) + at.Note }

// title names the repetition; empty before the first one.
func title(at bench.Progress) string {
	switch {
	case at.Passes > 0:
		return fmt.Sprintf("[%d/%d] %s %s rep %d: ", at.Pass, at.Passes, at.Subject, at.Cell, at.Rep)
	case at.Pass > 0:
		return fmt.Sprintf("[%d] %s %s rep %d: ", at.Pass, at.Subject, at.Cell, at.Rep)
	}
	return ""
}

// Duration rounds to seconds, from ten minutes on to minutes.
func Duration(d time.Duration) string {
	if d >= 10*time.Minute {
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return d.Round(time.Second).String()
}
