package reports

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/diff"
	"synclab/reports/front"
	"synclab/reports/history"
	"synclab/reports/reportstest"
)

// shapes are the ways in which honest runs lack records, by name. Each takes a run's records.
var shapes = map[string]func(*rand.Rand, []raw.Record) []raw.Record{
	"ended in the middle": func(random *rand.Rand, all []raw.Record) []raw.Record { return all[:random.IntN(len(all))] },
	"without some metrics": func(random *rand.Rand, all []raw.Record) []raw.Record {
		left := map[raw.Metric]bool{}
		return slices.DeleteFunc(all, func(r raw.Record) bool {
			if _, drawn := left[r.Metric]; !drawn {
				left[r.Metric] = random.IntN(3) == 0
			}
			return left[r.Metric]
		})
	},
	"repetitions without some metrics": func(random *rand.Rand, all []raw.Record) []raw.Record {
		left := map[string]bool{}
		return slices.DeleteFunc(all, func(r raw.Record) bool {
			key := fmt.Sprint(r.Metric, r.Subject, r.Services, r.Rep)
			if _, drawn := left[key]; !drawn {
				left[key] = random.IntN(3) == 0
			}
			return left[key]
		})
	},
	"repetitions that ended early": func(random *rand.Rand, all []raw.Record) []raw.Record {
		ends := map[string]float64{}
		return slices.DeleteFunc(all, func(r raw.Record) bool {
			key := fmt.Sprint(r.Subject, r.Services, r.Rep)
			if _, drawn := ends[key]; !drawn {
				ends[key] = random.ExpFloat64() * 10
			}
			return r.At > ends[key]
		})
	},
	"one of two shards": func(random *rand.Rand, all []raw.Record) []raw.Record {
		odd := random.IntN(2)
		return slices.DeleteFunc(all, func(r raw.Record) bool { return (r.Services+r.Rep)%2 == odd })
	},
	"extreme values": func(random *rand.Rand, all []raw.Record) []raw.Record {
		extremes := []float64{0, 2e-12, -2e-12, 1e-9, -1, 1e9, 1e15, -1e15}
		metric, extreme := all[random.IntN(len(all))].Metric, extremes[random.IntN(len(extremes))]
		every := random.IntN(2) == 0
		for i := range all {
			if all[i].Metric == metric && (every || random.IntN(8) == 0) {
				all[i].Value = extreme
			}
		}
		return all
	},
	"stopped subjects": func(random *rand.Rand, all []raw.Record) []raw.Record {
		var out []raw.Record
		stopped := map[string]bool{}
		for _, r := range all {
			key := fmt.Sprint(r.Subject, r.Services, r.Rep)
			if stopped[key] {
				continue
			}
			if stopped[key] = random.IntN(40) == 0; stopped[key] {
				r.Metric, r.Value, r.Unit, r.Error = raw.Exceeded, 600, "s", "stopped after 10m0s: 3 of 10 Services visible"
			}
			out = append(out, r)
		}
		return out
	},
}

// Every honest incomplete run has a report: repetitions that ended early, subjects that never converged, one of two
// shards. So has one with extreme values. SYNCLAB_SHAPES sets how many are tried.
func TestIncompleteRuns(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	tries := len(shapes) * 5 // each of each run
	if n, err := strconv.Atoi(os.Getenv("SYNCLAB_SHAPES")); err == nil {
		tries = n
	}
	few := reportstest.FiveSizes()
	few.Sizes, few.Reps, few.Churn, few.Probe = []int{500, 2000}, 3, 8, 4
	sweep := reportstest.Churning
	sweep.Sizes, sweep.Reps, sweep.Churn, sweep.Periods = []int{100, 1000}, 3, 10, []string{"0s", "1s"}
	folder := t.TempDir()
	var runs []string
	for name, write := range map[string]func(testing.TB, string){
		"compare": few.Write, "sweep": sweep.Write,
		"packets": reportstest.TraversalRun(reportstest.PacketModels, []int{10, 100}, 2, 3).Write,
		"stream":  reportstest.StreamRun(reportstest.StreamModels, 20, 2, 5, 2).Write,
		"faults":  reportstest.FaultRun(reportstest.StreamModels, 20, 2, 5).Write,
	} {
		dir := filepath.Join(folder, name)
		write(t, dir)
		runs = append(runs, dir)
	}
	slices.Sort(runs)
	var names []string
	for name := range shapes {
		names = append(names, name)
	}
	slices.Sort(names)
	random := rand.New(rand.NewPCG(11, 12))
	out := filepath.Join(folder, "out")
	for try := range tries {
		whole, shape := runs[try%len(runs)], names[try/len(runs)%len(names)]
		if only := os.Getenv("SYNCLAB_SHAPE"); only != "" {
			shape = only
		}
		run, records, err := raw.ReadRun(whole)
		if err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("try %d, %s, %s", try, filepath.Base(whole), shape)
		dir := filepath.Join(folder, "part")
		run.Status = []string{raw.StatusComplete, raw.StatusInterrupted, raw.StatusFailed}[try%3]
		writeRecords(t, dir, run, shapes[shape](random, records))
		func() {
			defer func() {
				if failed := recover(); failed != nil {
					t.Errorf("%s: panic: %v", at, failed)
				}
			}()
			s, err := Build([]string{dir}, out, Options{NoPNG: true})
			if err != nil {
				t.Errorf("%s: %v", at, err)
				return
			}
			if err := front.Terminal(io.Discard, s); err != nil {
				t.Errorf("%s: terminal: %v", at, err)
			}
			if d, err := diff.Compare(whole, dir, diff.Options{}); err == nil {
				err = d.Page(io.Discard)
				if err != nil {
					t.Errorf("%s: diff: %v", at, err)
				}
			}
			if entries, _, err := history.Read([]string{whole, dir}); err == nil {
				if err := history.Of(entries, history.Options{}).Page(io.Discard); err != nil {
					t.Errorf("%s: history: %v", at, err)
				}
			}
		}()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}
