package soak

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"synclab/bench/fault"
	"synclab/bench/lab/shell"
	"synclab/bench/outfile"
	"synclab/scenarios"
)

// RunFunc runs a scenario with one subject, into a folder that does not exist yet. An error says nothing about the
// subject: Synclab could not run, or ctx ended.
type RunFunc func(ctx context.Context, s *scenarios.Scenario, subject, dir string) (Outcome, error)

// Options of a soak. Subjects, Run and Dir are required.
type Options struct {
	// Seed of the first scenario; each further scenario has the next number.
	Seed uint64
	// Time after which no further scenario starts. 0 means no bound.
	Time time.Duration
	// Seeds is the most scenarios to run. 0 means no bound.
	Seeds    int
	Subjects []string
	Random   scenarios.RandomOptions
	Run      RunFunc
	// Dir is the soak's folder. It gets summary.json, and a folder and a scenario file for each seed.
	Dir string
	// KeepGoing continues after a failed seed.
	KeepGoing bool
	// Minimize is the time to search for a smaller scenario after each failed seed. 0 means no search.
	Minimize time.Duration
	// Tries is the most runs of a smaller scenario until it fails. Default 2, because failures depend on timing.
	Tries int
	// Flags are the words of command-line flags that make the same scenarios, for the replay command.
	Flags []string
	// Where are those of the programs, the kernel and the tools, for every command.
	Where []string
	Clock clock.WithTicker // default: the real one
	// Tell receives progress lines; nil discards them. Calls come one at a time.
	Tell func(string)
}

// Soak is a running soak.
type Soak struct {
	o       Options
	folder  *outfile.Folder // o.Dir, while Run runs
	mu      sync.Mutex      // protects the fields below
	summary Summary
	doing   string
}

// tellEvery is the interval of progress lines.
const tellEvery = time.Minute

const defaultTries = 2

// New makes a soak.
func New(o Options) (*Soak, error) {
	if len(o.Subjects) == 0 {
		return nil, errors.New("soak: no subject: set Options.Subjects")
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Tries == 0 {
		o.Tries = defaultTries
	}
	if o.Tell == nil {
		o.Tell = func(string) {}
	}
	return &Soak{o: o}, nil
}

// Run runs seed after seed. The returned summary, also in the folder, covers all runs until the end, even after an
// error. An error comes from Synclab or ctx. Failures of subjects are in the summary.
func (k *Soak) Run(ctx context.Context) (Summary, error) {
	var err error
	if k.folder, err = outfile.MakeFolder(k.o.Dir); err != nil {
		return Summary{}, fmt.Errorf("soak: %w", err)
	}
	defer k.folder.Close()
	k.summary = Summary{Started: k.o.Clock.Now(), FirstSeed: k.o.Seed, Subjects: k.o.Subjects, BySubject: map[string]Totals{}, Failed: []Failed{}}
	telling, stop := context.WithCancel(ctx)
	var reporting sync.WaitGroup
	reporting.Go(func() { k.tellNowAndThen(telling) })
	err = k.seeds(ctx)
	stop()
	reporting.Wait()
	k.summary.Finished = k.o.Clock.Now()
	return k.summary, errors.Join(err, k.summary.write(k.folder))
}

func (k *Soak) tellNowAndThen(ctx context.Context) {
	ticker := k.o.Clock.NewTicker(tellEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			k.tell("")
		}
	}
}

// tell reports a line, or the progress if the line is empty.
func (k *Soak) tell(line string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if line == "" {
		line = k.summary.Line(k.o.Clock.Now()) + "; now " + k.doing
	}
	k.o.Tell(line)
}

func (k *Soak) now(doing string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doing = doing
}

func (k *Soak) seeds(ctx context.Context) error {
	for i := 0; k.o.Seeds == 0 || i < k.o.Seeds; i++ {
		if k.o.Time > 0 && i > 0 && k.o.Clock.Since(k.summary.Started) >= k.o.Time {
			return nil
		}
		failed, err := k.seed(ctx, k.o.Seed+uint64(i), k.o.Subjects[i%len(k.o.Subjects)])
		if err != nil || (failed && !k.o.KeepGoing) {
			return err
		}
	}
	return nil
}

// seed runs one scenario.
func (k *Soak) seed(ctx context.Context, seed uint64, subject string) (failed bool, err error) {
	s, err := scenarios.Random(seed, k.o.Random)
	if err != nil {
		return false, err
	}
	dir := filepath.Join(k.o.Dir, fmt.Sprintf("seed-%d", seed))
	file := dir + ".yaml"
	if err := writeScenario(k.folder, filepath.Base(file), s); err != nil {
		return false, err
	}
	k.now(fmt.Sprintf("seed %d, %s", seed, subject))
	began := k.o.Clock.Now()
	outcome, err := k.o.Run(ctx, s, subject, dir)
	if err != nil {
		return false, fmt.Errorf("seed %d, %s: %w", seed, subject, err)
	}
	verdict := "ok"
	if len(outcome.Failures) > 0 {
		verdict = "FAILED"
	}
	k.mu.Lock()
	k.summary.add(subject, outcome)
	k.mu.Unlock()
	k.tell(fmt.Sprintf("seed %d, %s: %s: %d Services, %d steps in %v: %s", seed, subject, verdict, s.Shape.Services, len(s.Steps),
		k.o.Clock.Since(began).Round(time.Second), outcome.Totals))
	if len(outcome.Failures) == 0 {
		return false, k.summary.write(k.folder) // a killed soak still has the summary of its runs
	}
	return true, k.failed(ctx, s, Failed{
		Seed: seed, Subject: subject, Folder: dir, Failures: outcome.Failures,
		Again: []string{k.again(seed, subject), replay(file, subject, k.o.Where)},
	})
}

// again returns the command that makes and runs the scenario of a seed again.
func (k *Soak) again(seed uint64, subject string) string {
	return shell.Line(slices.Concat([]string{"synclab", "soak", "--seed", fmt.Sprint(seed), "--seeds", "1", "--subjects", subject}, k.o.Flags, k.o.Where)...)
}

// replay returns the command that runs a scenario file as a soak does.
func replay(file, subject string, where []string) string {
	return shell.Line(append([]string{"synclab", "run", atPath(file), "--subjects", subject, "--reps", "1", "--feed", "api"}, where...)...)
}

// atPath changes a path so that `synclab run` does not read it as a name of its library.
func atPath(file string) string {
	if filepath.Base(file) == file {
		return "./" + file
	}
	return file
}

// failed reports a failed seed, and searches for a smaller scenario that fails too.
func (k *Soak) failed(ctx context.Context, s *scenarios.Scenario, f Failed) error {
	for _, failure := range f.Failures {
		k.tell("  " + failure.String())
	}
	for _, command := range f.Again {
		k.tell("  replay: " + command)
	}
	var err error
	if k.o.Minimize > 0 {
		err = k.minimize(ctx, s, &f)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.summary.Failed = append(k.summary.Failed, f)
	return errors.Join(err, k.summary.write(k.folder))
}

// minimize writes the smallest scenario with the seed's failure into the seed's folder.
func (k *Soak) minimize(ctx context.Context, s *scenarios.Scenario, f *Failed) error {
	const runs, kept = "tries", "minimal" // folders of the seed's folder
	first, tries, failed := f.Failures[0], 0, 0
	folder, err := k.folder.Sub(filepath.Base(f.Folder))
	if err != nil {
		return err
	}
	defer folder.Close()
	m := Minimizer{
		Budget: k.o.Minimize, Tries: k.o.Tries, FailedAt: fault.StepIndex(first.Step), Tell: func(text string) { k.tell("  " + text) },
		Fails: func(ctx context.Context, c *scenarios.Scenario) (bool, error) {
			tries++
			k.now(fmt.Sprintf("seed %d, %s, minimizing: try %d, %d steps", f.Seed, f.Subject, tries, len(c.Steps)))
			dir := filepath.Join(runs, fmt.Sprint(tries))
			o, err := k.o.Run(ctx, c, f.Subject, filepath.Join(f.Folder, dir))
			if err != nil {
				return false, err
			}
			for _, failure := range o.Failures {
				if failure.like(first) {
					failed++
					return true, errors.Join(folder.RemoveAll(kept), keep(folder, dir, kept))
				}
			}
			return false, folder.RemoveAll(dir)
		},
	}
	smallest, err := m.Minimize(ctx, s)
	f.Came = fmt.Sprintf("%d of %d", failed, tries)
	_ = folder.RemoveAll(runs)
	if smallest != nil {
		const name = "minimal.yaml"
		f.Minimal = filepath.Join(f.Folder, name)
		if writeErr := writeScenario(folder, name, smallest); writeErr != nil {
			return errors.Join(err, writeErr)
		}
		f.Again = append(f.Again, replay(f.Minimal, f.Subject, k.o.Where))
		k.tellSteps(f.Minimal, smallest, f.Came)
		k.tell("  replay: " + f.Again[len(f.Again)-1])
	} else {
		k.tell(fmt.Sprintf("  did not fail again in %d runs; the records are in %s", tries, f.Folder))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// keep moves a run's folder, if it exists.
func keep(in *outfile.Folder, from, to string) error {
	if err := in.Root.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (k *Soak) tellSteps(file string, s *scenarios.Scenario, came string) {
	k.tell(fmt.Sprintf("  smallest failing scenario: %s (%d Services, %d steps; failed in %s runs)", file, s.Shape.Services, len(s.Steps), came))
	for i, step := range s.Steps {
		k.tell(fmt.Sprintf("    %d:%s", i+1, stepText(step)))
	}
}

func writeScenario(folder *outfile.Folder, name string, s *scenarios.Scenario) error {
	text, err := s.YAML()
	if err != nil {
		return err
	}
	return folder.Write(name, text, 0o644)
}
