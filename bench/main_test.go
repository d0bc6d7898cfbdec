package bench

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// workerArgs make this test binary a worker.
var workerArgs = []string{"bench-worker"}

func TestMain(m *testing.M) {
	if slices.Equal(os.Args[1:], workerArgs) {
		os.Exit(worker())
	}
	os.Exit(netns.TestMain(m))
}

// worker is the body of the command that the lab starts for each repetition.
func worker() int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	if err := Work(ctx, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}
