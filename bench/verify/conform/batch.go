package conform

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/sim"
)

// Subject is one side of a comparison.
type Subject struct {
	// KubeProxy selects an unmodified kube-proxy; otherwise the subject is Synclab's proxier.
	KubeProxy bool
	// Name and Command are of a kube-proxy other than the comparison's; empty: it is that one.
	Name, Command string
	// Variant of iptables; empty means the setting's variant.
	Variant iptables.Variant
	// Real runs Synclab's proxier with real tables and partial syncs. Otherwise its rules are rendered, always by a
	// full sync.
	Real bool
}

// String returns the subject's name, such as "kube-proxy/iptables-nft". It omits the variant if Variant is empty.
func (s Subject) String() string {
	name := "synclab"
	if s.KubeProxy {
		name = cmp.Or(s.Name, "kube-proxy")
	}
	if s.Variant != "" {
		name += "/iptables-" + string(s.Variant)
	}
	return name
}

// Batch is a sequence of cluster states in one setting. Both subjects see it from its first state to its last.
type Batch struct {
	// Name identifies the batch; Again is what runs it again.
	Name    string
	Again   Again
	Setting Setting
	// Node is the name of the node that the proxiers run on; empty means the first node.
	Node string
	// Real runs Synclab's proxier with real tables and partial syncs.
	Real bool
	// Next returns the next step, or false after the last step. The first step has Objects, with the node among them.
	Next func() (Step, bool, error)

	begun int // clusters started since the last report
}

// Again is the part of a command line that chooses one batch of a comparison: arguments, and flags with their values.
// The flags replace those of the comparison; all others of the comparison stay. A flag without a value is left out.
type Again struct {
	Args  []string
	Flags [][2]string
}

// Step is one change of the cluster in a batch.
type Step struct {
	What string
	// Objects is the desired state of the whole cluster. If it is nil, Trace lists the changes.
	Objects *sim.Objects
	Trace   sim.Trace
	// Later: Objects are a later state of the same cluster, not another one.
	Later bool
}

// Finding lists the differences in one state of a batch.
type Finding struct {
	// What names the state.
	What        string
	Differences []Difference
	// Before and After are the cluster's states around the changes that led to the difference. Before is nil in the
	// first state.
	Before, After *sim.Objects
}

// Unexplained returns the differences that no entry predicts.
func (f *Finding) Unexplained() []Difference {
	return slices.DeleteFunc(slices.Clone(f.Differences), func(d Difference) bool { return d.Entry != "" })
}

// Comparison runs batches.
type Comparison struct {
	// First and Second are the subjects; a diff goes from the first to the second.
	First, Second Subject
	// KubeProxy is the path of the kube-proxy command.
	KubeProxy string
	// Minor of KubeProxy's version, for EntryHints; 0: not known.
	Minor int
	// MaxTime is Setting.MaxTime, for all batches.
	MaxTime time.Duration
	// State, if set, is called after each compared state. f is nil if nothing differs.
	State func(b *Batch, f *Finding)
}

// side is a running subject.
type side interface {
	// rules returns the subject's rules after all changes so far. A real proxier has seen all changes when it has
	// written the chains named in signal.
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

// run is the state of one running batch.
type run struct {
	*Comparison
	batch    *Batch
	feed     *feed
	sides    [2]side
	rendered *rendered    // by Synclab's proxier, for predictions
	node     *corev1.Node // of the proxiers, as they read it at their start
}

// Run compares the subjects at each state of a batch.
func (c *Comparison) Run(ctx context.Context, b *Batch) error {
	r := &run{Comparison: c, batch: b, feed: newFeed()}
	r.feed.minor = c.Minor
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
			if !step.Later {
				b.begun++
			}
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
		ended, err := r.followNode(ctx)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", b.Name, step.What, err)
		}
		found, err := r.compare(ctx)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", b.Name, step.What, err)
		}
		found = append(found, ended...)
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
		return fmt.Errorf("node %q is not in the cluster", r.batch.Node)
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
	r.batch.Setting.Unaccounted = isOld(r.Minor)
	return r.startOn(ctx, nodes[i], machine)
}

// startOn starts the subjects on a node.
func (r *run) startOn(ctx context.Context, node *corev1.Node, machine proxier.Machine) (err error) {
	r.node = node
	r.rendered = &rendered{setting: r.batch.Setting, node: node, machine: machine}
	r.feed.proxiersStart(node.Name)
	for n, subject := range []Subject{r.First, r.Second} {
		s := r.batch.Setting
		s.MaxTime, s.Variant = r.MaxTime, cmp.Or(subject.Variant, s.Variant)
		switch {
		case subject.KubeProxy:
			r.sides[n], err = startKubeProxy(ctx, cmp.Or(subject.Command, r.KubeProxy), s, node, r.feed)
		case subject.Real:
			r.sides[n], err = startInstalled(ctx, s, node, r.feed)
		default:
			r.sides[n] = &rendered{setting: s, node: node, machine: machine}
		}
		if err != nil {
			r.sides[n] = nil // it may hold a nil pointer
			return err
		}
	}
	return nil
}

func (r *run) stop() {
	for n, s := range r.sides {
		if s != nil {
			s.stop()
			r.sides[n] = nil
		}
	}
}

// A node's zone reaches a proxier through a watch that the signal does not cover. A difference therefore counts only if
// later syncs still show it. Differences that entries predict are checked only twice, because no later sync changes
// them.
const (
	tries          = 12
	explainedTries = 2
	between        = 150 * time.Millisecond
)

// compare returns the differences in the feed's current state.
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

// differences lets the subjects sync, and returns the differences between their rules.
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
		return found, nil // the entries predict kube-proxy against Synclab's proxier only
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
