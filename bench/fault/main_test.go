package fault

import (
	"os"
	"testing"

	"synclab/bench/lab/netns"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }
