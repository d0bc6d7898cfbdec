package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/manifests"
)

// Request says what to compare. It may combine random clusters, scenarios and objects.
type Request struct {
	KubeProxy     string // the command
	Minor         int    // of its version; 0: not known
	First, Second Subject
	Workers       int // batches in parallel; default 1
	// MaxTime is the longest wait for kube-proxy; 0: a minute.
	MaxTime time.Duration
	// Kernel is the path of a kernel for User-mode Linux, for Execute; empty: the machine's own.
	Kernel string

	// Clusters is the number of random clusters; Seed is the seed of the first batch.
	Clusters int
	Seed     uint64
	Limit    Constraint

	Scenarios []ScenarioRequest
	// Objects come from files. Then are the states after them.
	Objects *sim.Objects
	Then    []*sim.Objects
	Name    string // of the files
	Setting Setting

	// Minimize is the number of tries to make a difference smaller; 0 means none.
	Minimize int
}

// ScenarioRequest is a scenario, the configuration of its proxiers, and the variant.
type ScenarioRequest struct {
	// Ref is the name or the file of the scenario, for Again. Default: the scenario's name.
	Ref      string
	Scenario *scenarios.Scenario
	Config   *v1alpha1.KubeProxyConfiguration
	Variant  iptables.Variant
}

// Event reports the progress of a comparison.
type Event struct {
	// Clusters and States count what has been compared so far. Total is the expected number of States; 0 if unknown.
	Clusters, States, Total int
	// Entries counts, for each known difference, how many differences it has explained so far.
	Entries map[string]int
	// Unexplained counts the differences that no entry explains, Differing the states with any.
	Unexplained, Differing int
	// NotCompared counts the batches that could not be compared to their end.
	NotCompared int
	// Failure is set at the first state of a batch with an unexplained difference, and if a batch could not be compared.
	Failure *Failure `json:",omitempty"`
}

// Failure is a difference that no entry explains, or a batch that could not be compared.
type Failure struct {
	Batch, What string
	Again       Again
	// Text is the diff; Error is why the batch could not be compared. One of them is empty.
	Text, Error string
	// Before and After are YAML of a smaller pair of states that differs too. They are empty if Minimize is 0.
	Before, After string
}

// batches returns the batches of a request and the number of their states; 0 if the number is unknown.
func (q *Request) batches() (all []*Batch, total int, err error) {
	limit := q.Limit
	limit.Minor = q.Minor
	for first := 0; first < q.Clusters; first += BatchClusters {
		n := min(BatchClusters, q.Clusters-first)
		all = append(all, RandomBatch(q.Seed+uint64(first/BatchClusters), n, limit))
		total += n * (steps + 1)
	}
	for _, s := range q.Scenarios {
		b, err := ScenarioBatch(s.Scenario, s.Config, s.Variant)
		if err != nil {
			return nil, 0, err
		}
		if s.Ref != "" {
			b.Again.Args = []string{s.Ref}
		}
		all, total = append(all, b), 0
	}
	if q.Objects != nil {
		all, total = append(all, ObjectsBatch(q.Name, q.Objects, q.Then, q.Setting)), 0
	}
	return all, total, nil
}

// worker runs the batches of a request.
type worker struct {
	Request
	mu    sync.Mutex
	event Event
	tell  func(Event)
}

// Run compares all batches in this process's namespace. It calls tell after each state.
func (q *Request) Run(ctx context.Context, tell func(Event)) error {
	batches, total, err := q.batches()
	if err != nil {
		return err
	}
	w := &worker{Request: *q, event: Event{Total: total, Entries: map[string]int{}}, tell: tell}
	next := make(chan *Batch)
	var all sync.WaitGroup
	for range max(1, min(q.Workers, len(batches))) {
		all.Go(func() {
			for b := range next {
				w.run(ctx, b)
			}
		})
	}
	for _, b := range batches {
		select {
		case next <- b:
		case <-ctx.Done():
		}
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

// run compares one batch. A batch that cannot be compared is a failure too, and does not stop the other batches.
func (w *worker) run(ctx context.Context, b *Batch) {
	failed := false
	c := Comparison{First: w.First, Second: w.Second, KubeProxy: w.KubeProxy, Minor: w.Minor, MaxTime: w.MaxTime}
	if b.Real {
		c.First.Real, c.Second.Real = true, true
	}
	c.State = func(b *Batch, f *Finding) {
		var failure *Failure
		if f != nil && len(f.Unexplained()) > 0 && !failed {
			failed = true // later states usually differ for the same reason; the next run shows the others
			failure = w.failure(ctx, c, b, f)
		}
		w.note(b, f, failure)
	}
	if err := c.Run(ctx, b); err != nil && ctx.Err() == nil {
		w.note(b, nil, &Failure{Batch: b.Name, Again: b.Again, Error: err.Error()})
	}
}

// note counts a state that was compared, or a batch that could not be.
func (w *worker) note(b *Batch, f *Finding, failure *Failure) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.event.Clusters += b.begun
	b.begun = 0
	if failure != nil && failure.Error != "" {
		w.event.NotCompared++
	} else {
		w.event.States++
	}
	if f != nil {
		for _, d := range f.Differences {
			if d.Entry != "" {
				w.event.Entries[d.Entry]++
			}
		}
		if n := len(f.Unexplained()); n > 0 {
			w.event.Unexplained += n
			w.event.Differing++
		}
	}
	e := w.event
	e.Entries = maps.Clone(e.Entries)
	e.Failure = failure
	w.tell(e)
}

func (w *worker) failure(ctx context.Context, c Comparison, b *Batch, f *Finding) *Failure {
	failure := &Failure{Batch: b.Name, What: f.What, Again: b.Again,
		Text: fmt.Sprintf("--- %s\n+++ %s\n%s", w.First, w.Second, f)}
	if w.Minimize == 0 {
		return failure
	}
	c.State = nil
	before, after, err := Minimize(ctx, f.Before, f.After, w.Minimize, func(ctx context.Context, before, after *sim.Objects) (bool, error) {
		return c.differs(ctx, b, before, after)
	})
	if err != nil {
		failure.Text += "\nnot minimized: " + err.Error()
		return failure
	}
	failure.Before, failure.After = yamlOf(before), yamlOf(after)
	return failure
}

// differs compares a pair of states from a fresh start.
func (c Comparison) differs(ctx context.Context, like *Batch, before, after *sim.Objects) (bool, error) {
	found := false
	c.State = func(_ *Batch, f *Finding) { found = f != nil && len(f.Unexplained()) > 0 }
	if before == nil {
		before = &sim.Objects{Nodes: after.Nodes}
	}
	b := ObjectsBatch("smaller", before, []*sim.Objects{after}, like.Setting)
	b.Node = like.Node
	err := c.Run(ctx, b)
	return found, err
}

func yamlOf(o *sim.Objects) string {
	if o == nil {
		return ""
	}
	var b bytes.Buffer
	if err := manifests.WriteObjects(&b, o); err != nil {
		return err.Error()
	}
	return b.String()
}

// String returns the diff of all unexplained differences, by Service.
func (f *Finding) String() string {
	var texts []string
	for _, d := range f.Unexplained() {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "\n")
}

// Work runs in the child process: it reads a Request, compares, and writes one Event a line.
func Work(ctx context.Context, in io.Reader, out io.Writer) error {
	if _, err := netns.Enter(); err != nil {
		return err
	}
	var q Request
	if err := json.NewDecoder(in).Decode(&q); err != nil {
		return fmt.Errorf("request: %w", err)
	}
	lines := json.NewEncoder(out)
	return q.Run(ctx, func(e Event) { _ = lines.Encode(e) }) // a write fails only if the parent has exited
}

// Execute compares in a separate namespace: it starts this program again with args. These args must make it call Work.
func (q *Request) Execute(ctx context.Context, stderr io.Writer, args []string, tell func(Event)) error {
	request, err := json.Marshal(q)
	if err != nil {
		return fmt.Errorf("request: %w", err)
	}
	read, write := io.Pipe()
	var reading sync.WaitGroup
	reading.Go(func() {
		lines := json.NewDecoder(read)
		for {
			var e Event
			if err := lines.Decode(&e); err != nil {
				_ = read.CloseWithError(err)
				return
			}
			tell(e)
		}
	})
	if q.Kernel == "" {
		err = netns.Reexec(ctx, bytes.NewReader(request), write, stderr, nil, args...)
	} else {
		err = netns.Boot(ctx, q.Kernel, bytes.NewReader(request), write, stderr, nil, nil, args...)
	}
	_ = write.Close()
	reading.Wait()
	return err
}

// Variants returns the iptables variants that this machine has tools for and kube-proxy works with. In an ordinary
// user's namespace the kernel rejects large batches of iptables-nft-restore ("Message too long"), and kube-proxy cannot
// send smaller ones.
func Variants() ([]iptables.Variant, error) {
	var found []iptables.Variant
	var errs []error
	for _, v := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		_, err := iptables.FindBinary(iptables.Binary(v, corev1.IPv4Protocol, "restore"))
		switch {
		case err != nil:
			errs = append(errs, err)
		case v == iptables.Nft && (os.Geteuid() != 0 || netns.InUserNamespace()):
			errs = append(errs, errors.New("iptables-nft takes no large batches from an ordinary user: run as root"))
		default:
			found = append(found, v)
		}
	}
	if len(found) == 0 {
		return nil, errors.Join(errs...)
	}
	return found, nil
}
