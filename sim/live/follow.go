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

// Change is a change of the followed cluster. Its Due is how long after the snapshot it arrived.
type Change struct {
	sim.Change
	// At is when it arrived here, by the wall clock.
	At time.Time
}

// Options of Follow. Snapshot and Change are called one at a time, in order; while one of them works, nothing more is
// taken from the watches, and if that lasts, the server ends them. An error of theirs ends Follow.
type Options struct {
	// Snapshot gets the state that the changes start from. It is called once, before any Change.
	Snapshot func(*sim.Objects) error
	// Change gets each change. Its object must not be written to.
	Change func(Change) error
	// Trouble hears of failed requests, which are tried again; nil: nobody does. It may be called at any time.
	Trouble func(error)
	// Clock; the real one when nil.
	Clock clock.WithTicker
}

func (o *Options) setDefaults() error {
	if o.Snapshot == nil || o.Change == nil {
		return errors.New("live: nobody takes the snapshot or the changes")
	}
	if o.Trouble == nil {
		o.Trouble = func(error) {}
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return nil
}

// Summary is what following was like, by kind of object.
type Summary struct {
	Services, EndpointSlices, Nodes Kind
}

// Kind is what following one kind of objects was like.
type Kind struct {
	Objects int // in the snapshot
	Changes int // handed on, those found by relisting included
	// Unchanged are events of nodes without a difference that a proxy could see; they are not handed on.
	Unchanged int
	// Watches is how many watches were begun; each but the first took up where the one before had ended, or followed a
	// relist.
	Watches int
	// Relists is how often a place in the stream of events was lost. What happened to an object meanwhile counts as one
	// change at most: Found are those, and whatever came between is lost.
	Relists, Found int
	// Deaf is how long nothing could be heard before relists: from the end of a watch to the list.
	Deaf time.Duration
}

// Lost says whether events may be missing.
func (s *Summary) Lost() bool {
	return s.Services.Relists+s.EndpointSlices.Relists+s.Nodes.Relists > 0
}

// String is the summary in a few lines, for people.
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

// Follow lists and watches until ctx ends or a callback fails. The summary is valid in either case; the end of ctx is no
// error. A cluster that cannot be reached is no error either: it is tried again, and Trouble hears of it.
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

// follower merges the kinds into one stream. Its lock is what makes it one.
type follower struct {
	opts  Options
	kinds []*kind
	fail  context.CancelCauseFunc

	mu sync.Mutex
	// since is when the snapshot was handed on; zero before.
	since time.Time
}

// listed is called with the lock when a kind has its first list. The last one makes the snapshot.
func (f *follower) listed() error {
	if slices.ContainsFunc(f.kinds, func(k *kind) bool { return !k.listed }) {
		return nil
	}
	var objects sim.Objects
	for _, k := range f.kinds {
		k.summary.Objects = len(k.known)
		for _, object := range k.known {
			switch object := object.(type) {
			case *corev1.Service:
				objects.Services = append(objects.Services, object)
			case *discoveryv1.EndpointSlice:
				objects.Slices = append(objects.Slices, object)
			case *corev1.Node:
				objects.Nodes = append(objects.Nodes, object)
			}
		}
	}
	sortByName(objects.Services)
	sortByName(objects.Slices)
	sortByName(objects.Nodes)
	f.since = f.opts.Clock.Now()
	if err := f.opts.Snapshot(&objects); err != nil {
		return fmt.Errorf("live: snapshot: %w", err)
	}
	return nil
}

func sortByName[T metav1.Object](objects []T) {
	slices.SortFunc(objects, func(a, b T) int {
		if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
			return c
		}
		return strings.Compare(a.GetName(), b.GetName())
	})
}
