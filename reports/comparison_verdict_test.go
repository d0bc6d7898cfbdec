package reports

import (
	"strings"
	"testing"

	"synclab/reports/reportstest"
)

// With two subjects, the verdict says once how they compare. With more, it also names the best.
func TestVerdictOfTwo(t *testing.T) {
	third := reportstest.Legacy
	third.Name = "synclab/iptables-legacy-tree"
	for _, subjects := range [][]reportstest.Subject{{reportstest.Legacy, reportstest.NFT}, {reportstest.Legacy, reportstest.NFT, third}} {
		y := reportstest.Run{ID: "pair", Scenario: "cold-start", Subjects: subjects, Sizes: []int{1000}, Reps: 8, Outside: true}
		dir := t.TempDir()
		_, markdown := outputs(t, dir, buildOf(t, y, dir, Options{NoPNG: true}))
		if best := strings.Contains(markdown, "Best at "); best != (len(subjects) > 2) || !strings.Contains(markdown, " against ") {
			head, _, _ := strings.Cut(markdown, "\n## ")
			t.Errorf("%d subjects, best named: %t\n%s", len(subjects), best, head)
		}
	}
}
