package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/utils/clock"
)

// patience is how long after the first signal another one still belongs to it: timeout(1) signals its child and then
// the process group that the child is in, and so each of them twice.
const patience = time.Second

// heedSignals winds the program up at the first signal and lets a later one end it at once.
func heedSignals(windUp context.CancelFunc) {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	last := secondThoughts(signals, clock.RealClock{}, windUp)
	signal.Reset(os.Interrupt, syscall.SIGTERM)
	if number, ok := last.(syscall.Signal); ok {
		_ = syscall.Kill(os.Getpid(), number) // with its default meaning
	}
}

// secondThoughts calls windUp at the first signal, and returns the first one that comes after the patience is over.
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
