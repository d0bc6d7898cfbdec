package invariants

import (
	"context"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/conform"
	"synclab/proxier/iptables/rule"
	"synclab/sim"
)

// checkConform compares kube-proxy's rules in mode iptables with layout classic, as package conform does: by Service,
// only reachable rules, in any order of Services. A difference that an entry of docs/differences.md predicts rule for
// rule is no violation.
func (e *Evidence) checkConform(ctx context.Context, family corev1.IPFamily, x *expected, r *report) error {
	theirs, ours := grouped(e.Saved[family]), grouped(x.saved[family])
	for _, d := range conform.Diff(family, theirs, ours) {
		entry, err := e.explain(ctx, &d, theirs)
		if err != nil {
			return err
		}
		if entry == "" {
			r.violated(d.Service, "%s: kube-proxy's rules (-) differ from a full sync (+): %s", family, strings.Join(changed(d.Lines), " | "))
		}
	}
	return nil
}

func grouped(s Saved) conform.Grouped { return conform.Group(conform.Tables(s.own()).Reachable()) }

// mostLines is the number of lines shown of a difference.
const mostLines = 6

// changed returns the lines of a difference that are not on both sides.
func changed(lines []string) []string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(l string) bool { return strings.HasPrefix(l, "  ") })
	return lines[:min(mostLines, len(lines))]
}

// explain returns the entry that predicts a difference. It renders the objects as kube-proxy sees them according to
// each entry; if that gives kube-proxy's rules, the entry explains them.
func (e *Evidence) explain(ctx context.Context, d *conform.Difference, theirs conform.Grouped) (string, error) {
	if d.Service == "" {
		return "", nil
	}
	holds := func(o *sim.Objects) (bool, error) {
		x, err := e.render(ctx, e.Options.Machine, o)
		if err != nil {
			return false, err
		}
		predicted := grouped(x.saved[d.Family])
		return !slices.ContainsFunc(conform.Diff(d.Family, theirs, predicted), func(p conform.Difference) bool { return p.Service == d.Service }), nil
	}
	if onlyComments(d.Family, d.Lines) {
		return conform.EntryLarge, nil
	}
	o := e.Objects
	for order := range conform.Orders(o.Slices, d.Family, d.Service) {
		if yes, err := holds(&sim.Objects{Services: o.Services, Slices: order, Nodes: o.Nodes}); yes || err != nil {
			return conform.EntryTwice, err
		}
	}
	if yes, err := holds(&sim.Objects{Services: o.Services, Slices: o.Slices, Nodes: conform.WithoutZones(o.Nodes)}); yes || err != nil {
		return conform.EntryZone, err
	}
	return "", nil
}

// onlyComments reports whether two sides differ only in the comments of endpoint rules.
func onlyComments(family corev1.IPFamily, lines []string) bool {
	var sides [2][]string // removed and added rules, without comments
	for _, line := range lines {
		side := strings.Index("-+", line[:1])
		switch {
		case side < 0 && strings.HasPrefix(line, "@@ ") && strings.Contains(line, ", only in"):
			return false
		case side < 0:
			continue
		}
		chain, r, err := rule.Parse(family, line[2:])
		if err != nil || !conform.Endpoint(chain) && !conform.Endpoint(r.Target.Chain) {
			return false
		}
		sides[side] = append(sides[side], r.WithoutComments().Line(chain))
	}
	return slices.Equal(sides[0], sides[1])
}
