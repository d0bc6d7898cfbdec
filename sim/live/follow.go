package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"synclab/sim"
)

// Change is a change of the followed cluster. Its Due is the time from the snapshot to its arrival.
type Change struct {
	sim.Change
	// At is its arrival time, by the wall clock.
	At time.Time
}

// Options of Follow. Snapshot and Change are called one at a time, in order. While one of them runs, nothing is taken
// from the watches; if that lasts, the server ends them. An error of a callback ends Follow.
type Options struct {
	// Snapshot receives the state that the changes start from. It is called once, before any Change.
	Snapshot func(*sim.Objects) error
	// Change receives each change. Its object must not be written to.
	Change func(Change) error
	// Trouble, if set, receives errors of failed requests, which are retried. It may be called at any time.
	Trouble func(error)
	// Clock is the real one when nil.
	Clock clock.WithTicker
}

func (o *Options) setDefaults() error {
	if o.Snapshot == nil || o.Change == nil {
		return errors.New("live: set Options.Snapshot and Options.Change")
	}
	if o.Trouble == nil {
		o.Trouble = func(error) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// Summary is the statistics of Follow, by kind of object.
type Summary struct {
	Services, EndpointSlices, Nodes Kind
}

// Kind is the statistics of one kind of objects.
type Kind struct {
	Objects int // in the snapshot
	Changes int // delivered, including those found by relisting
	// Unchanged counts events of nodes without a difference that a proxy could see; they are not delivered.
	Unchanged int
	// Watches counts the watches begun. Each but the first resumed where the one before had ended, or followed a
	// relist.
	Watches int
	// Relists counts how often the position in the stream of events was lost. Found counts the changes that relists
	// found: at most one for each object. All intermediate changes are lost.
	Relists, Found int
	// Deaf is the total time without events before relists: from the end of a watch to the list.
	Deaf time.Duration
}

// Lost reports whether events may be missing.
func (s *Summary) Lost() bool {
	return s.Services.Relists+s.EndpointSlices.Relists+s.Nodes.Relists > 0
}

// String returns the summary in a few lines for people.
func (s *Summary) String() string {
	var text strings.Builder
	for _, k := range []struct {
		name string
		kind Kind
	}{{"services", s.Services}, {"endpointslices", s.EndpointSlices}, {"nodes", s.Nodes}} {
		fmt.Fprintf(&text, "%s: %d at first, %d changes", k.name, k.kind.Objects, k.kind.Changes)
		if k.kind.Relists > 0 {
			fmt.Fprintf(&text, "; events lost %d times, %s without any, %d changes found afterwards",
				k.kind.Relists, k.kind.Deaf.Round(time.Millisecond), k.kind.Found)
		}
		text.WriteByte('\n')
	}
	return text.String()
}

// Follow lists and watches until ctx ends or a callback fails. The summary is valid in both cases. The end of ctx is
// no error. A cluster that cannot be reached is no error either: Follow retries and calls Trouble.
func Follow(ctx context.Context, client kubernetes.Interface, o Options) (Summary, error) {
	if err := o.setDefaults(); err != nil {
		return Summary{}, err
	}
	outer := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f := &follower{opts: o, fail: fail}
	core, discovery := client.CoreV1(), client.DiscoveryV1()
	f.kinds = []*kind{
		{example: &corev1.Service{}, source: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, list metav1.ListOptions) (runtime.Object, error) {
				return core.Services(metav1.NamespaceAll).List(ctx, list)
			},
			WatchFuncWithContext: core.Services(metav1.NamespaceAll).Watch,
		}},
		{example: &discoveryv1.EndpointSlice{}, source: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, list metav1.ListOptions) (runtime.Object, error) {
				return discovery.EndpointSlices(metav1.NamespaceAll).List(ctx, list)
			},
			WatchFuncWithContext: discovery.EndpointSlices(metav1.NamespaceAll).Watch,
		}},
		{example: &corev1.Node{}, quiet: true, source: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, list metav1.ListOptions) (runtime.Object, error) {
				return core.Nodes().List(ctx, list)
			},
			WatchFuncWithContext: core.Nodes().Watch,
		}},
	}
	var following sync.WaitGroup
	for _, k := range f.kinds {
		k.follower, k.known = f, map[string]runtime.Object{}
		reflector := k.reflector(client)
		following.Go(func() { reflector.RunWithContext(ctx) })
	}
	following.Wait()
	summary := Summary{Services: f.kinds[0].summary, EndpointSlices: f.kinds[1].summary, Nodes: f.kinds[2].summary}
	if outer.Err() != nil {
		return summary, nil
	}
	return summary, context.Cause(ctx)
}

// follower merges the kinds into one stream, under its lock.
type follower struct {
	opts  Options
	kinds []*kind
	fail  context.CancelCauseFunc

	mu sync.Mutex
	// since is the time of the snapshot; zero before it.
	since time.Time
}

// listed is called with the lock when a kind has its first list. After the last kind it delivers the snapshot.
func (f *follower) listed() error {
	if slices.ContainsFunc(f.kinds, func(k *kind) bool { return !k.listed }) {
		return nil
	}
	var objects sim.Objects
	for _, k := range f.kinds {
		k.summary.Objects = len(k.known)
		for _, object := range k.known {
			objects.Add(object)
		}
	}
	objects.Sort()
	f.since = f.opts.Clock.Now()
	if err := f.opts.Snapshot(&objects); err != nil {
		return fmt.Errorf("live: snapshot: %w", err)
	}
	return nil
}
