package kernel

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"synclab/bench/lab/netns"
)

func TestTallyAgreesWithIptables(t *testing.T) {
	for _, x := range tools() {
		t.Run(x.String(), func(t *testing.T) {
			netns.Fresh(t)
			x.restore(t, ruleset(x, 60))
			want := map[string]int{}
			out, err := exec.Command(x.name, "-t", "nat", "-S").Output()
			if err != nil {
				t.Fatal(err)
			}
			for line := range bytes.Lines(out) {
				switch fields := strings.Fields(string(line)); fields[0] {
				case "-A":
					want[fields[1]]++
				case "-N":
					want[fields[1]] += 0
				case "-P":
					if fields[1] == "OUTPUT" || x.variant == Legacy {
						want[fields[1]] += 0
					}
				}
			}
			got, err := Tally(x.variant, x.family, "nat")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("rules by chain (-iptables +Tally):\n%s", diff)
			}
		})
	}
}
