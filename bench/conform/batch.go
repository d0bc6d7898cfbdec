package conform

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/sim"
)

// Subject is one side of a comparison.
type Subject struct {
	// KubeProxy: an unmodified kube-proxy; otherwise our proxier.
	KubeProxy bool
	// Variant of iptables; empty: the setting's.
	Variant iptables.Variant
	// Real: our proxier with real tables and partial syncs. Otherwise its rules are rendered, always by a full sync.
	Real bool
}

// String is the subject's name: "kube-proxy/iptables-nft", or without the variant where it is the setting's.
func (s Subject) String() string {
	name := "synclab"
	if s.KubeProxy {
		name = "kube-proxy"
	}
	if s.Variant != "" {
		name += "/iptables-" + string(s.Variant)
	}
	return name
}

// Batch is a cluster's life in one setting, that both subjects see from its beginning to its end.
type Batch struct {
	// Name says which it is, Replay how to do it again.
	Name, Replay string
	Setting      Setting
	// Node that the proxiers run on; empty: the first.
	Node string
	// Real lets our proxier run with real tables and partial syncs.
	Real bool
	// Next gives what happens next, false at the end. The first step holds objects, the node among them.
	Next func() (Step, bool, error)

	begun int // clusters since the last report
}

// Step of a batch.
type Step struct {
	What string
	// Objects are all that shall be there; nil: Trace says what changes.
	Objects *sim.Objects
	Trace   sim.Trace
}

// Finding is what differs at one point of a batch.
type Finding struct {
	// What state of the batch it was.
	What        string
	Differences []Difference
	// Before and After are the cluster's states around the changes after which it was seen; Before is nil at first.
	Before, After *sim.Objects
}

// Unexplained are the differences that no entry predicts.
func (f *Finding) Unexplained() []Difference {
	return slices.DeleteFunc(slices.Clone(f.Differences), func(d Difference) bool { return d.Entry != "" })
}

// Comparison is how batches are run.
type Comparison struct {
	// First and Second subject; a diff goes from the first to the second.
	First, Second Subject
	// KubeProxy is the command.
	KubeProxy string
	// State, when set, is called after each state compared, with nil when nothing differs.
	State func(b *Batch, f *Finding)
}

// side is a subject at work.
type side interface {
	// rules gives what the subject makes of all that has happened. A proxier shows by the chains of the signal that it
	// has seen it.
	rules(ctx context.Context, f *feed, signal map[corev1.IPFamily]string) (map[corev1.IPFamily]Grouped, error)
	stop()
}

func (k *kubeProxy) rules(ctx context.Context, _ *feed, signal map[corev1.IPFamily]string) (map[corev1.IPFamily]Grouped, error) {
	if err := k.await(ctx, signal); err != nil {
		return nil, err
	}
	return saveBoth(k.space, k.variant)
}

func saveBoth(s *space, variant iptables.Variant) (map[corev1.IPFamily]Grouped, error) {
	all := map[corev1.IPFamily]Grouped{}
	for _, family := range both {
		saved, err := saveIn(s, variant, family)
		if err != nil {
			return nil, err
		}
		all[family] = saved
	}
	return all, nil
}

// run is a batch under way.
type run struct {
	*Comparison
	batch    *Batch
	feed     *feed
	sides    [2]side
	rendered *rendered // ours, to predict with
}

// Run compares the subjects at each state of a batch.
func (c *Comparison) Run(ctx context.Context, b *Batch) error {
	r := &run{Comparison: c, batch: b, feed: newFeed()}
	defer r.feed.cluster.Stop()
	for i := 0; ; i++ {
		step, more, err := b.Next()
		if err != nil {
			return fmt.Errorf("%s: %w", b.Name, err)
		}
		if !more {
			return nil
		}
		var before *sim.Objects
		if i > 0 {
			before = r.feed.objects()
		}
		if step.Objects != nil {
			b.begun++
			step.Trace = r.feed.traceTo(step.Objects)
		}
		if err := r.feed.apply(ctx, step.Trace); err != nil {
			return fmt.Errorf("%s, %s: %w", b.Name, step.What, err)
		}
		if i == 0 {
			defer r.stop()
			if err := r.start(ctx); err != nil {
				return fmt.Errorf("%s: %w", b.Name, err)
			}
		}
		found, err := r.compare(ctx)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", b.Name, step.What, err)
		}
		if c.State == nil {
			continue
		}
		if len(found) == 0 {
			c.State(b, nil)
			continue
		}
		c.State(b, &Finding{What: step.What, Differences: found, Before: before, After: r.feed.objects()})
	}
}

func (r *run) start(ctx context.Context) error {
	nodes := r.feed.objects().Nodes
	i := slices.IndexFunc(nodes, func(n *corev1.Node) bool { return r.batch.Node == "" || n.Name == r.batch.Node })
	if i < 0 {
		return fmt.Errorf("node %q is not there", r.batch.Node)
	}
	probe, err := newSpace(nil)
	if err != nil {
		return err
	}
	defer probe.close()
	machine, err := machineOf(probe, r.batch.Setting.Variant)
	if err != nil {
		return err
	}
	r.rendered = &rendered{setting: r.batch.Setting, node: nodes[i].Name, machine: machine}
	r.feed.watched = nodes[i].Name
	for n, subject := range []Subject{r.First, r.Second} {
		s := r.batch.Setting
		if subject.Variant != "" {
			s.Variant = subject.Variant
		}
		switch {
		case subject.KubeProxy:
			r.sides[n], err = asSide(startKubeProxy(ctx, r.KubeProxy, s, nodes[i], r.feed))
		case subject.Real:
			r.sides[n], err = asSide(startInstalled(ctx, s, nodes[i], r.feed))
		default:
			r.sides[n] = &rendered{setting: s, node: nodes[i].Name, machine: machine}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asSide keeps a nil pointer from becoming a side that is not nil.
func asSide[T interface {
	comparable
	side
}](s T, err error) (side, error) {
	var none T
	if s == none {
		return nil, err
	}
	return s, err
}

func (r *run) stop() {
	for _, s := range r.sides {
		if s != nil {
			s.stop()
		}
	}
}

// A node's zone reaches a proxier through a watch that the signal says nothing of: what differs is looked at again, after
// one more sync, before it counts. Differences that entries predict are looked at twice only: waiting changes none.
const (
	tries          = 12
	explainedTries = 2
	between        = 150 * time.Millisecond
)

// compare gives what differs in the state that the feed is in.
func (r *run) compare(ctx context.Context) (found []Difference, err error) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for try := range tries {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if found, err = r.differences(ctx); err != nil || len(found) == 0 {
			return nil, err
		}
		explained := !slices.ContainsFunc(found, func(d Difference) bool { return d.Entry == "" })
		if explained && try+1 >= explainedTries {
			break
		}
		pause.Reset(between)
	}
	return found, nil
}

// differences lets the subjects sync, and gives what differs then.
func (r *run) differences(ctx context.Context) ([]Difference, error) {
	signal, err := r.feed.raise(ctx)
	if err != nil {
		return nil, err
	}
	var rules [2]map[corev1.IPFamily]Grouped
	for i, side := range r.sides {
		if rules[i], err = side.rules(ctx, r.feed, signal); err != nil {
			return nil, err
		}
	}
	var found []Difference
	for _, family := range both {
		found = append(found, Diff(family, rules[0][family], rules[1][family])...)
	}
	if r.First.KubeProxy == r.Second.KubeProxy {
		return found, nil // the entries are about kube-proxy and ours
	}
	theirs := rules[0]
	if r.Second.KubeProxy {
		theirs = rules[1]
	}
	for i := range found {
		d := &found[i]
		if d.Entry, err = explain(ctx, d, theirs[d.Family], r.rendered, r.feed); err != nil {
			return nil, err
		}
	}
	return found, nil
}
