package bench

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/sim/world"
)

// scope is a TB of a test or benchmark whose clean-up runs in close.
type scope struct {
	testing.TB
	cleanups []func()
}

func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) close() {
	for i := len(s.cleanups) - 1; i >= 0; i-- {
		s.cleanups[i]()
	}
	s.cleanups = nil
}

// missedAddr returns an address in the Services' range that no Service has: the last one.
func missedAddr(world *world.World) netip.AddrPort {
	prefix := netip.MustParsePrefix("10.96.0.0/12")
	addr := netip.MustParseAddr("10.111.255.254")
	for _, svc := range world.Objects().Services {
		if svc.Spec.ClusterIP == addr.String() || !prefix.Contains(netip.MustParseAddr(svc.Spec.ClusterIP)) {
			panic("the generator took " + svc.Spec.ClusterIP + ": choose another address to miss")
		}
	}
	return netip.AddrPortFrom(addr, 80)
}

// phases are the sums of the syncs' reported phases.
type phases struct {
	syncs, bytes, rules        int
	plan, encode, user, system time.Duration
}

func (p *phases) add(s proxier.Sync) {
	p.syncs++
	p.plan += s.Plan
	p.encode += s.Encode
	for _, run := range s.Runs {
		p.user += run.User
		p.system += run.System
		p.bytes += run.Bytes
	}
	p.rules = 0 // installed after the last sync
	for _, count := range s.Installed {
		p.rules += count.Rules
	}
}

func (p *phases) report(b *testing.B) {
	perOp := func(total float64, unit string) { b.ReportMetric(total/float64(p.syncs), unit) }
	perOp(float64(p.plan), "plan-ns/op")
	perOp(float64(p.encode), "encode-ns/op")
	perOp(float64(p.user), "tool-user-ns/op")
	perOp(float64(p.system), "tool-sys-ns/op")
	perOp(float64(p.bytes), "restore-B/op")
	b.ReportMetric(float64(p.rules), "rules")
}

// voidTables accepts every payload and discards it.
type voidTables struct{}

func (voidTables) Restore(_ context.Context, p *iptables.Payload) (iptables.Run, error) {
	return iptables.Run{Tool: "void", Bytes: p.Size()}, nil
}
func (voidTables) EnsureJumps(context.Context, map[iptables.Table][]string) error  { return nil }
func (voidTables) Rules(iptables.Table, ...string) (map[string][]rule.Rule, error) { return nil, nil }
func (voidTables) ChainRules() (iptables.ChainRules, error) {
	return iptables.NewModel(corev1.IPv4Protocol).ChainRules()
}
func (voidTables) Chains(iptables.Table) ([]string, error)    { return nil, nil }
func (voidTables) Fingerprint() (iptables.Fingerprint, error) { return iptables.Fingerprint{}, nil }
func (voidTables) Others(map[iptables.Table]iptables.Count) (iptables.Fingerprint, error) {
	return iptables.Fingerprint{}, nil
}
func (voidTables) Drift(iptables.Expected) backend.Comparison { return backend.Compared("", nil) }
