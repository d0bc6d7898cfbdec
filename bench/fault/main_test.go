package fault

import (
	"os"
	"testing"

	"synclab/bench/netns"
)

func TestMain(m *testing.M) {
	if os.Getenv(allocates) != "" {
		allocate()
		return
	}
	os.Exit(netns.TestMain(m))
}
