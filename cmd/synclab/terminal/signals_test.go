package terminal

import (
	"os"
	"syscall"
	"testing"
	"time"
)

// scripted is a clock with given readings, in order.
type scripted []time.Time

func (s *scripted) Now() time.Time {
	now := (*s)[0]
	*s = (*s)[1:]
	return now
}

func (s *scripted) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// Signals that follow the first one closely belong to it. A later one ends the program.
func TestSecondThoughts(t *testing.T) {
	for _, c := range []struct {
		name  string
		after []time.Duration // since the first signal; the last signal must end the program
	}{
		{"impatient", []time.Duration{patience}},
		{"of timeout(1)", []time.Duration{0, time.Minute}},
		{"hammered", []time.Duration{0, time.Millisecond, patience - 1, patience}},
	} {
		t.Run(c.name, func(t *testing.T) {
			readings := scripted{time.Unix(0, 0)}
			signals := make(chan os.Signal, 1+len(c.after))
			signals <- syscall.SIGTERM
			for i, after := range c.after {
				readings = append(readings, time.Unix(0, 0).Add(after))
				if i == len(c.after)-1 {
					signals <- os.Interrupt
				} else {
					signals <- syscall.SIGTERM
				}
			}
			wound := 0
			if s := secondThoughts(signals, &readings, func() { wound++ }); s != os.Interrupt || wound != 1 || len(readings) != 0 {
				t.Errorf("ended by %v with %d readings left, wound up %d times; want the last signal, once", s, len(readings), wound)
			}
		})
	}
}
