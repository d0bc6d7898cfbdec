package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/montanaflynn/stats"
	"gonum.org/v1/gonum/stat/distuv"
)

// In a whole design each subject has each place, and each other subject before it, equally often.
func TestTurnsAreBalanced(t *testing.T) {
	for n := 2; n <= 7; n++ {
		subjects := make([]string, n)
		for i := range subjects {
			subjects[i] = fmt.Sprint(i)
		}
		rows := n * (1 + n%2)
		places, after := map[string]int{}, map[string]int{}
		for rep := rows + 1; rep <= 2*rows; rep++ { // of the second design
			order := inTurn(subjects, rep, rand.New(rand.NewPCG(1, 2)))
			if sorted := slices.Sorted(slices.Values(order)); !slices.Equal(sorted, subjects) {
				t.Fatalf("%d subjects, repetition %d: %v", n, rep, order)
			}
			for i, subject := range order {
				places[fmt.Sprint(subject, " at ", i)]++
				if i > 0 {
					after[subject+" after "+order[i-1]]++
				}
			}
		}
		for name, counts := range map[string]map[string]int{"places": places, "pairs": after} {
			for what, count := range counts {
				if count != rows/n {
					t.Errorf("%d subjects, %s: %s %d times in %d repetitions, want %d", n, name, what, count, rows, rows/n)
				}
			}
		}
		if len(places) != n*n || len(after) != n*(n-1) {
			t.Errorf("%d subjects: %d places, %d pairs", n, len(places), len(after))
		}
	}
}

// A subject that makes the next one slower changes no comparison. With a fixed order it does: the subjects are equal,
// but one always runs after the heavy one.
func TestCarryOver(t *testing.T) {
	const trials, reps, carried, noise = 400, 12, 0.06, 0.02
	subjects := []string{"heavy", "a", "b"}
	fixed := func(int, *rand.Rand) []string { return subjects }
	balanced := func(rep int, seeded *rand.Rand) []string { return inTurn(subjects, rep, seeded) }
	found := func(order func(int, *rand.Rand) []string) float64 {
		differs := 0
		for trial := range trials {
			random := rand.New(rand.NewPCG(3, uint64(trial)))
			var ratios []float64 // logarithms of b / a
			last := ""
			for rep := 1; rep <= reps; rep++ {
				value := map[string]float64{}
				for _, subject := range order(rep, rand.New(rand.NewPCG(uint64(trial), 0))) {
					value[subject] = noise * random.NormFloat64()
					if last == "heavy" {
						value[subject] += carried
					}
					last = subject
				}
				ratios = append(ratios, value["b"]-value["a"])
			}
			mean, _ := stats.Mean(ratios)
			deviation, _ := stats.StandardDeviationSample(ratios)
			if quantile := (distuv.StudentsT{Sigma: 1, Nu: reps - 1}).Quantile(0.975); math.Abs(mean) > quantile*deviation/math.Sqrt(reps) {
				differs++
			}
		}
		return float64(differs) / trials
	}
	if share := found(fixed); share < 0.9 {
		t.Errorf("a fixed order finds a difference in %.0f %% of the runs; the carry-over is too weak for this test", 100*share)
	}
	if share := found(balanced); share > 0.06 {
		t.Errorf("the order in turn finds a difference between equal subjects in %.1f %% of the runs", 100*share)
	}
}
