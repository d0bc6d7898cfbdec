package reports

import (
	"os"
	"testing"
)

// TestSample writes sample reports into the folder SYNCLAB_SAMPLE_REPORTS, to be looked at.
func TestSample(t *testing.T) {
	dir := os.Getenv("SYNCLAB_SAMPLE_REPORTS")
	if dir == "" {
		t.Skip("SYNCLAB_SAMPLE_REPORTS names no folder")
	}
	for _, y := range samples {
		y.write(t, dir+"/"+y.id)
		s, err := Build([]string{dir + "/" + y.id}, "", Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Table(os.Stdout); err != nil {
			t.Fatal(err)
		}
	}
}

var samples = []synthetic{
	{id: "steady", scenario: "steady-churn", subjects: []syntheticSubject{legacy}, sizes: []int{10000}, reps: 1, churn: 1000, probe: 300},
	{id: "sizes", scenario: "size-sweep", subjects: []syntheticSubject{legacy, nft}, sizes: []int{100, 316, 1000, 3162, 10000}, reps: 3, churn: 300, probe: 200},
	{id: "period", scenario: "sync-period", subjects: []syntheticSubject{legacy}, sizes: []int{2000}, reps: 3, churn: 300,
		periods: []string{"100ms", "500ms", "1s", "2s", "5s", "10s"}, failed: 1, status: "interrupted"},
}
