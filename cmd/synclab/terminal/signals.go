package terminal

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// patience is the time after the first signal in which another one belongs to it. timeout(1) signals its child and then
// the child's process group, so each process gets two signals.
const patience = time.Second

// HeedSignals cancels the program's context at the first signal. A later signal ends the program at once.
func HeedSignals(windUp context.CancelFunc) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	last := secondThoughts(signals, clock.RealClock{}, windUp)
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	if number, ok := last.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number) // with its default action
	}
}

// secondThoughts calls windUp at the first signal. It returns the first signal after the patience.
func secondThoughts(signals <-chan os.Signal, c clock.PassiveClock, windUp func()) os.Signal {
	<-signals
	first := c.Now()
	windUp()
	for {
		if s := <-signals; c.Since(first) >= patience {
			return s
		}
	}
}
