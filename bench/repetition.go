package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/fault"
	"synclab/bench/lab/machine"
	"synclab/bench/lab/netns"
	"synclab/bench/lab/shim"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/step"
	"synclab/bench/subject"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim/api"
	"synclab/sim/live"
	"synclab/sim/world"
)

// repetition is one measured pass of a cell, inside the worker's namespace. It executes the steps. Its parts do the rest.
type repetition struct {
	*step.Parts
	stalls stallWatch
}

// perform executes an assignment.
func perform(ctx context.Context, lab *netns.Lab, a pass.Assignment, changes *live.Decoder, say *pass.MessageWriter) error {
	r := &repetition{Parts: step.New(&pass.Env{Assignment: a, Lab: lab, Messages: say, Clock: clock.RealClock{}})}
	r.Started = r.Clock.Now()
	if changes != nil {
		r.Following = step.Follow(changes)
	}
	r.timeCaches()
	defer r.timeCaches()
	r.watchStalls()
	defer r.endStalls()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	ctx, r.Fail = context.WithCancelCause(ctx)
	defer r.Fail(nil)
	err := errors.Join(r.steps(ctx), r.Flows.Close())
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	exceeded := false
	err, exceeded = r.Host.Exceeded(err)
	if err == nil {
		r.Host.PeakMemory()
		r.Host.SendHeap(ctx)
	}
	err = errors.Join(err, r.Faults.End(), r.Host.Stop())
	if err == nil {
		err = r.Host.SendProfile(ctx)
	}
	if err == nil && !exceeded {
		err = r.dump(ctx)
	}
	err = errors.Join(err, r.Host.Close())
	r.Cluster.Stop()
	return err
}

// prepare makes the cluster's objects and configuration, without a proxier.
func (r *repetition) prepare(ctx context.Context) error {
	var err error
	if r.About, err = subject.Parse(r.Subject); err != nil {
		return err
	}
	r.First = r.About
	r.Subject, r.Layout = r.About.Name, r.About.Layout
	if r.Objects != nil {
		r.World = world.WorldOf(r.Objects, r.Scenario.Seed)
		given, shape := r.World.Shape(), &r.Scenario.Shape
		shape.Families, shape.ServiceCIDRs, shape.PodCIDRs = given.Families, given.ServiceCIDRs, given.PodCIDRs
	} else if r.World, err = world.NewWorld(r.Scenario.Shape, r.Scenario.Seed); err != nil {
		return err
	}
	r.RecordAs(raw.Record{After: r.After}, raw.Turn, float64(r.Turn))
	// The first changes may already be in step create. The cluster before them is the same in all repetitions.
	r.World.Repetition(r.Rep)
	for _, family := range r.Scenario.Shape.Families {
		r.Families = append(r.Families, corev1.IPFamily(family))
	}
	if err := r.limitFamilies(); err != nil {
		return err
	}
	if r.Feed == raw.FeedAPI {
		r.Shim, err = shim.Install(ctx, shim.Options{Dir: filepath.Join(r.Lab.Dir, "shim"), Command: r.Tools.Shim, Variant: string(r.About.Variant), Families: r.Families})
		if err == nil && r.Host.KeepsInputs() {
			err = r.Shim.KeepInputs()
		}
		if err != nil {
			return err
		}
	}
	r.Cluster = api.NewCluster(r.Clock)
	r.Config = subject.ProxyConfig(r.ProxyConfig, &r.Scenario, r.Objects == nil)
	r.Messages.Stage("generate", 0, 0)
	return machine.ResetPeakRSS()
}

// limitFamilies makes every subject serve the same IP families. kube-proxy serves all that the namespace has: IPv4
// always, and IPv6 unless it is disabled. It is disabled if the scenario has no IPv6.
func (r *repetition) limitFamilies() error {
	r.Served = []corev1.IPFamily{corev1.IPv4Protocol}
	if !slices.Contains(r.Families, corev1.IPv6Protocol) {
		err := r.Lab.DisableIPv6()
		if err == nil || !netns.HasIPv6() {
			return err
		}
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("every subject also serves IPv6, since it cannot be disabled: %v", err)})
	}
	r.Served = append(r.Served, corev1.IPv6Protocol)
	return nil
}

func (r *repetition) steps(ctx context.Context) error {
	defer r.Host.EndWork()
	r.readGaps(false) // those of the preparation
	for i := range r.Scenario.Steps {
		s := &r.Scenario.Steps[i]
		kind, ok := step.Kinds[s.Kind()]
		if !ok {
			continue // left out
		}
		name := scenarios.StepName(i, s.Kind())
		r.Step.Store(&name)
		for _, listen := range r.Events.Stepping {
			listen(name, r.Clock.Now())
		}
		r.Host.BeginWork(s, name)
		err := r.Host.Revive(ctx)
		if err == nil {
			err = kind.Run(r.Parts, ctx, step.Step{Step: s, Name: name})
		}
		r.readStalls()
		r.readGaps(true)
		if err != nil {
			return fmt.Errorf("step %s: %w", name, err)
		}
		if kind.EndsWork {
			r.Host.EndWork()
		}
		if over := r.Exceeded(); over != "" {
			r.Messages.Send(pass.Message{Note: "the rest is left out: " + over})
			break
		}
	}
	return r.Checks.Deliver(ctx)
}

func (r *repetition) dump(ctx context.Context) error {
	if !r.Dump {
		return nil
	}
	commands, err := r.dumpCommands()
	if err != nil {
		return err
	}
	for _, command := range commands {
		path, err := iptables.FindBinary(command[0])
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, path, command[1:]...).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.Messages.Send(pass.Message{Rules: string(out)})
	}
	return nil
}

// dumpCommands returns the commands that print the subject's rules.
func (r *repetition) dumpCommands() (commands [][]string, err error) {
	switch {
	case r.About.Nftables() && r.About.Own:
		for _, family := range r.Families {
			tables, _, err := r.OwnNftables(family)
			if err != nil {
				return nil, err
			}
			for _, table := range tables {
				commands = append(commands, []string{"nft", "list", "table", fault.NftProtocol(family), table.Name})
			}
		}
	case r.About.Nftables():
		commands = [][]string{{"nft", "list", "ruleset"}}
	case !r.About.Iptables():
		return nil, fmt.Errorf("--dump-iptables: no command is known that prints the rules of %s", r.Subject)
	default:
		for _, family := range r.Families {
			commands = append(commands, []string{iptables.Binary(r.About.Variant, family, "save")})
		}
	}
	return commands, nil
}
