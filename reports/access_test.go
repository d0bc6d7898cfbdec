package reports

import (
	"os"
	"path/filepath"
	"testing"

	"synclab/reports/reportstest"
)

// TestAccess checks the pages of each kind of run.
func TestAccess(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	one := reportstest.Run{ID: "steady", Scenario: "steady-churn", Subjects: []reportstest.Subject{reportstest.Legacy}, Sizes: []int{10000}, Reps: 1, Churn: 100, Probe: 30}
	for name, y := range map[string]interface{ Write(testing.TB, string) }{
		"one": one, "sweep": sweep, "five": reportstest.Five,
		"packets":    reportstest.TraversalRun(reportstest.PacketModels, []int{100, 1000}, 1, 10),
		"disruption": reportstest.StreamRun(reportstest.StreamModels, 500, 2, 60, 4),
		"faults":     reportstest.FaultRun(reportstest.StreamModels, 1000, 1, 20),
		"migrate":    moving(),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			buildOf(t, y, dir, Options{NoPNG: true})
			page, err := os.ReadFile(filepath.Join(dir, "index.html"))
			if err != nil {
				t.Fatal(err)
			}
			reportstest.CheckAccess(t, page)
		})
	}
}
