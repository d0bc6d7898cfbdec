package proxier

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"synclab/internal/seedstest"
	"synclab/proxier/iptables"
)

// refuses makes a model refuse the first line that contains one of the parts. With commit, it refuses the table's
// COMMIT instead.
func refuses(commit bool, parts ...string) func(p *iptables.Payload) error {
	return func(p *iptables.Payload) error {
		n, hit := 0, false
		for line := range strings.Lines(string(p.Text())) {
			n++
			for _, part := range parts {
				hit = hit || strings.Contains(line, part)
			}
			if hit && (!commit || line == "COMMIT\n") {
				return &iptables.RestoreError{Tool: "model", ExitCode: 1, Line: n, Owner: p.OwnerOf(n), Err: errors.New("refused")}
			}
		}
		return nil
	}
}

// If match bpf is missing, endpoints have chains from the first sync on. Packet counts are not blamed for a missing
// match bpf, nor the match for missing packet counts.
func TestMatchBPFRefused(t *testing.T) {
	for name, c := range map[string]struct {
		refused         []string
		bpf, accounting bool
	}{
		"bpf":               {[]string{"-m bpf"}, false, true},
		"nfacct":            {[]string{"-m nfacct"}, true, false},
		"bpf and nfacct":    {[]string{"-m bpf", "-m nfacct"}, false, false},
		"none, all is fine": {nil, true, true},
	} {
		for _, commit := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				cluster, model := newTreeCluster(seedstest.Of(t), corev1.IPv4Protocol), iptables.NewModel(corev1.IPv4Protocol)
				machine := Machine{BPF: true, Accounting: true, RandomFully: true}
				e := testEngine(t, cluster.family, model, func(o *Options) { o.Layout, o.Machine = iptables.Tree, machine })
				for range 300 {
					cluster.step(e)
				}
				model.Fail = refuses(commit, c.refused...)
				for range 2 {
					if err := e.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					if s := e.backend.Settings(); s.BPF != c.bpf || s.Accounting != c.accounting || len(e.refused.ports) > 0 {
						t.Errorf("bpf %v, packet counts %v; want %v, %v; refused %v", s.BPF, s.Accounting, c.bpf, c.accounting, e.refused.ports)
					}
					want := iptables.NewModel(cluster.family)
					alone := testEngine(t, cluster.family, want, func(o *Options) {
						o.Layout, o.Machine = iptables.Tree, Machine{BPF: c.bpf, Accounting: c.accounting, RandomFully: true}
					})
					cluster.tell(alone)
					if err := alone.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(strings.Split(saved(t, want), "\n"), strings.Split(saved(t, model), "\n")); diff != "" {
						t.Fatalf("(-a machine without +this one):\n%s", diff)
					}
					model.Fail = func(p *iptables.Payload) error {
						for _, part := range c.refused {
							if strings.Contains(string(p.Text()), part) {
								t.Errorf("%s was tried again", part)
							}
						}
						return nil
					}
					e.demandFull("test")
				}
			})
		}
	}
}

// A Service port whose rules are refused is found. Match bpf, which was suspected first, is used again by the next full
// sync and is not suspected a second time.
func TestMatchBPFInnocent(t *testing.T) {
	model := iptables.NewModel(corev1.IPv4Protocol)
	e := testEngine(t, corev1.IPv4Protocol, model, treeLayout)
	for i := range 5 {
		udpService(e, i)
	}
	bad := udpService(e, 5)
	refuse := refuses(true, " -d "+bad.Addr().String()+" ")
	doubted := 0
	model.Fail = func(p *iptables.Payload) error {
		if strings.Contains(string(p.Text()), " -j KUBE-SEP-") {
			doubted++
		}
		return refuse(p)
	}
	for full := range 2 {
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(e.refused.ports) != 1 {
			t.Errorf("refused %v, want one", e.refused.ports)
		}
		if s := e.backend.Settings(); full == 1 && (!s.BPF || doubted > 0) {
			t.Errorf("bpf %v; %d payloads without match bpf, want none", s.BPF, doubted)
		}
		doubted = 0
		e.demandFull("test")
	}
}

// The cause of a refused match bpf may go away: an hour later the match is tried again.
func TestMatchBPFIsTriedAgain(t *testing.T) {
	now := clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	model := iptables.NewModel(corev1.IPv4Protocol)
	e := testEngine(t, corev1.IPv4Protocol, model, func(o *Options) { treeLayout(o); o.Clock = now })
	udpService(e, 0)
	for i, c := range []struct {
		fail func(*iptables.Payload) error
		bpf  bool
	}{{refuses(true, "-m bpf"), false}, {nil, false}, {nil, true}} {
		model.Fail = c.fail
		e.demandFull("test")
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s := e.backend.Settings(); s.BPF != c.bpf {
			t.Errorf("full sync %d: bpf %v, want %v", i+1, s.BPF, c.bpf)
		}
		if i == 1 {
			now.Step(time.Hour)
		}
	}
}
