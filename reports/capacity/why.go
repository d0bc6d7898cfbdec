package capacity

import (
	"fmt"
	"math"
	"strings"

	"synclab/bench/subject"
	"synclab/reports/model"
)

func queryPartial(changed int) model.Query { return model.Query{Kind: model.Partial, Changed: changed} }

// words are the display texts of the SLOs' quantities.
var words = map[string]struct{ name, breaks string }{
	ProgrammingP99: {"network programming latency (p99)", "the latency of changes"},
	FirstPacketP99: {"first packet (p99)", "the first packet of a flow"},
	CPU:            {"CPU", "the CPU use"},
	Memory:         {"memory", "the memory use"},
	Start:          {"start", "the first sync of a start"},
}

// phaseWords describes a phase. kube-proxy's own computations are in the rest.
func phaseWords(name string, phase model.Quantity) string {
	switch phase {
	case model.Plan:
		return "computing the desired rules"
	case model.Encode:
		return "encoding the rules for the backend"
	case model.ToolUser:
		switch {
		case strings.Contains(name, "iptables"):
			return "iptables-restore itself (user time)"
		case subject.IsKubeProxy(name):
			return "nft itself (user time)"
		}
		return "encoding messages for the kernel"
	case model.ToolSys:
		return "the kernel"
	}
	switch {
	case !strings.HasPrefix(name, subject.Synclab+"/"):
	case strings.Contains(name, "nftables"):
		return "the proxier's bookkeeping"
	default:
		return "starting tools and waiting for them"
	}
	return "the proxier itself"
}

// dominating names the largest phase of a sync, with its share; empty if phases were not measured.
func (a *asker) dominating(c Cluster, kind string, changed int) string {
	var all float64
	var most model.Quantity
	phases := a.phases(c, kind, changed)
	for _, phase := range []model.Quantity{model.Plan, model.Encode, model.ToolUser, model.ToolSys, model.Rest} {
		all += phases[phase]
		if most == "" || phases[phase] > phases[most] {
			most = phase
		}
	}
	if all == 0 {
		return ""
	}
	return fmt.Sprintf("; %.0f %% of a sync is %s", 100*phases[most]/all, phaseWords(a.subject.Name, most))
}

// waits is the share of a latency from which the wait for minSyncPeriod is named as its cause.
const waits = 0.6

// why names the largest part of an SLO's quantity in a cluster.
func (a *asker) why(name string, c Cluster, p Policy) (string, error) {
	switch name {
	case ProgrammingP99:
		return a.whyLatency(c, p)
	case CPU:
		s, err := a.simulate(c, p, median)
		if err != nil {
			return "", err
		}
		changed := max(1, int(math.Round(s.together)))
		e, err := a.predict(c, queryPartial(changed))
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s syncs a second of %s each%s", digits(s.syncs, e.Basis), amount(Start, e.Median, e.Basis), a.dominating(c, model.Partial, changed)), nil
	case Start:
		e, err := a.predict(c, model.Query{Kind: model.Full})
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("a full sync takes %s%s", amount(Start, e.Median, e.Basis), a.dominating(c, model.Full, 0)), nil
	case Memory:
		e, err := a.predict(c, model.Query{Quantity: model.PeakRSS})
		if err != nil {
			return "", err
		}
		tool, found := a.tool(c)
		if !found {
			return fmt.Sprintf("the proxier uses %s", amount(Memory, e.Median, e.Basis)), nil
		}
		return fmt.Sprintf("the proxier uses %s, its largest tool %s", amount(Memory, e.Median, e.Basis), amount(Memory, tool.Median, tool.Basis)), nil
	}
	if !strings.Contains(a.subject.Name, "nftables") && !strings.Contains(a.subject.Name, "tree") {
		return fmt.Sprintf("a packet to the last Service passes the rules of all %s Services", digits(float64(c.Services), model.Measured)), nil
	}
	return "the cost of a packet hardly grows with the number of Services; it is the fixed cost of the ruleset", nil
}

// whyLatency names the largest part of the latency: the wait for minSyncPeriod, periodic full syncs, or the syncs
// themselves.
func (a *asker) whyLatency(c Cluster, p Policy) (string, error) {
	s, err := a.simulate(c, p, median)
	if err != nil {
		return "", err
	}
	changed := max(1, int(math.Round(s.together)))
	partial, err := a.predict(c, queryPartial(changed))
	if err != nil {
		return "", err
	}
	if full, err := a.predict(c, model.Query{Kind: again(a.subject)}); err == nil && hourly(a.subject.Name, c) && full.Median > 0.005*3600 && full.Median > 2*partial.Median {
		return fmt.Sprintf("the hourly full sync of %s, during which changes wait", amount(Start, full.Median, full.Basis)), nil
	}
	if wait := p.MinSyncPeriod.Seconds(); wait > waits*s.p99 {
		return fmt.Sprintf("the wait for minSyncPeriod (%s)", period(p.MinSyncPeriod)), nil
	}
	phase := a.dominating(c, model.Partial, changed)
	return fmt.Sprintf("a sync of %s changed Service%s takes %s, and a change waits for the current sync and for its own%s",
		digits(float64(changed), partial.Basis), plural(changed), amount(Start, partial.Median, partial.Basis), phase), nil
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}
