package virtualtest

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// mutations violate each property in a soak whose proxier has converged, and run its check.
var mutations = []struct {
	what, check string
	backend     proxier.BackendKind
	do          func(k *soak)
}{
	{"the tables are not repaired", inSync, proxier.Iptables, func(k *soak) {
		k.halt()
		k.tables().model = iptables.NewModel(corev1.IPv4Protocol)
		k.calm(Action{})
	}},
	{"the table of nf_tables is not repaired", inSync, proxier.Nftables, func(k *soak) {
		k.halt()
		clear(k.nftable().model.Sets["frontends"].Elements)
		k.calm(Action{})
	}},
	{"a change is not programmed", inSync, proxier.Iptables, func(k *soak) {
		k.halt()
		clear(k.state.services)
		k.calm(Action{})
	}},
	{"a foreign rule is deleted", untouched, proxier.Iptables, func(k *soak) {
		k.tables().foreign = "*filter\n-A INPUT -m comment --comment \"" + foreignMark + "\" -j ACCEPT\n*nat\n"
		k.look(Action{})
	}},
	{"a foreign flow is deleted", flowsGone, proxier.Iptables, func(k *soak) {
		k.clients = []*client{{family: corev1.IPv4Protocol, flow: udp("100.100.100.1:53", "100.100.100.1:53"), stranger: true}}
		k.checkFlows()
	}},
	{"a flow of a serving endpoint is deleted", flowsGone, proxier.Iptables, func(k *soak) {
		k.clients = []*client{{family: corev1.IPv4Protocol, flow: udp("10.96.0.1:53", "10.128.0.1:53")}}
		k.checkFlows()
	}},
	{"a flow stays at an endpoint that does not serve", flowsGone, proxier.Nftables, func(k *soak) {
		c := &client{family: corev1.IPv4Protocol, flow: udp("10.96.0.1:53", "10.128.0.1:53"), excused: true}
		k.clients = []*client{c}
		k.flows[corev1.IPv4Protocol].Add(c.flow)
		k.checkFlows()
	}},
	{"healthy while syncs fail", healthy, proxier.Iptables, func(k *soak) {
		k.failing[corev1.IPv4Protocol] = time.Now().Add(-time.Hour)
		k.look(Action{})
	}},
	{"a gauge is wrong", metered, proxier.Iptables, func(k *soak) {
		last := k.syncs[corev1.IPv4Protocol]
		last.Installed = maps.Clone(last.Installed)
		nat := last.Installed[iptables.NAT]
		nat.Rules++
		last.Installed[iptables.NAT] = nat
		k.syncs[corev1.IPv4Protocol] = last
		k.checkAll()
	}},
	{"no full sync for hours", hourly, proxier.Nftables, func(k *soak) {
		k.lastFull[corev1.IPv4Protocol] = time.Now().Add(-3 * time.Hour)
		k.checkAll()
	}},
	{"the proxier ends", ended, proxier.Iptables, func(k *soak) {
		k.halt()
		failed := make(chan error, 1)
		failed <- errors.New("it gave up")
		k.kill, k.ended = func() {}, failed
		k.stop()
	}},
	{"flows cannot be ended", lab, proxier.Iptables, func(k *soak) {
		k.flows[corev1.IPv4Protocol].Fail(errors.New("no memory"))
		k.clients = make([]*client, mostClients)
		k.forgetClients()
	}},
}

func (k *soak) tables() *tables   { return k.kernels[corev1.IPv4Protocol].(*tables) }
func (k *soak) nftable() *nftable { return k.kernels[corev1.IPv4Protocol].(*nftable) }

// halt stops the proxier without a replacement.
func (k *soak) halt() {
	k.kill()
	<-k.ended
	k.kill = nil
	synctest.Wait()
}

func (k *soak) checkAll() {
	wanted, err := k.wanted()
	if err != nil {
		panic(err)
	}
	k.checkCalm(wanted)
}

func udp(to, at string) conntrack.Flow {
	f := conntrack.Flow{Src: netip.MustParseAddrPort("10.128.200.1:20000"), Dst: netip.MustParseAddrPort(to), ReplySrc: netip.MustParseAddrPort(at)}
	f.ReplyDst = f.Src
	return f
}

// The checks find a violation of each property after its mutation, and none before it.
func TestBrokenChecks(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	tried := map[string]bool{}
	for _, m := range mutations {
		tried[m.check] = true
		t.Run(m.what, func(t *testing.T) {
			s := Setting{Seed: 1, Backend: m.backend, Variant: iptables.Legacy, Layout: iptables.Classic,
				Families: []corev1.IPFamily{corev1.IPv4Protocol}, World: true, Services: 20, MinSync: time.Second}
			source, err := newSource(s)
			if err != nil {
				t.Fatal(err)
			}
			first, err := source.first()
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				k := newSoak(s, first)
				defer k.cluster.Stop()
				if err := k.prepare(context.Background(), first); err != nil {
					t.Fatal(err)
				}
				if err := k.start(); err != nil {
					t.Fatal(err)
				}
				defer k.stop()
				k.look(Action{})
				k.calm(Action{})
				if v := k.report.Violation; v != nil {
					t.Fatalf("before the mutation: %+v", v)
				}
				m.do(k)
				if v := k.report.Violation; v == nil || v.Invariant != m.check {
					t.Errorf("violation %+v, want of %q", v, m.check)
				}
			})
		})
	}
	for _, check := range constants(t, "check.go") {
		if !tried[check] {
			t.Errorf("no mutation breaks %q", check)
		}
	}
}

// constants returns the values of a file's string constants.
func constants(t *testing.T, file string) []string {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, decl := range parsed.Decls {
		if g, ok := decl.(*ast.GenDecl); ok && g.Tok == token.CONST {
			ast.Inspect(g, func(n ast.Node) bool {
				if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					texts = append(texts, text)
				}
				return true
			})
		}
	}
	if len(texts) == 0 || slices.Contains(texts, "") {
		t.Fatalf("constants of %s: %q", file, texts)
	}
	return texts
}
