package proxier

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"synclab/internal/seedstest"
	"synclab/proxier/backend"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/nftables"
)

// gauge returns the value of the gauge with these labels.
func gauge(t *testing.T, registry *prometheus.Registry, name string, labels map[string]string) int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			same := family.GetName() == "kubeproxy_"+name
			for _, l := range m.GetLabel() {
				same = same && labels[l.GetName()] == l.GetValue()
			}
			if same {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	t.Fatalf("no %s with %v", name, labels)
	return 0
}

// installed counts the proxier's rules in the kernel by table. For backend nftables it adds the elements that the
// backend wrote.
func (w subject) installed(t *testing.T, family corev1.IPFamily) map[backend.Table]int {
	t.Helper()
	if w.backend == Nftables {
		reader, err := nftables.OpenReader()
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Close()
		table, err := reader.Table(family)
		if err != nil {
			t.Fatal(err)
		}
		k, err := kernel.OpenNftables()
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		tally, err := k.Tally(family, table)
		if err != nil {
			t.Fatal(err)
		}
		return map[backend.Table]int{nftables.Table: tally.Rules + tally.Elements}
	}
	rules := map[backend.Table]int{}
	for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
		tally, err := kernel.TallyOnce(string(w.variant), family, string(table))
		if err != nil {
			t.Fatal(err)
		}
		for chain, n := range tally {
			if strings.HasPrefix(chain, "KUBE-") {
				rules[table] += n
			}
		}
	}
	return rules
}

// After every sync the gauges equal the rules in the tables; after a full sync all of them count as written. This holds
// on an empty kernel, over the rules of an earlier proxier, in batches, and after a sync that failed half way.
func TestGauges(t *testing.T) {
	eachSubjectInKernel(t, func(t *testing.T, family corev1.IPFamily, w subject, start func(func(*Options)) *engine) {
		c := newRandomCluster(seedstest.Of(t), family)
		var last Sync
		next := func() *engine {
			return start(func(o *Options) {
				o.Batch = 30
				o.OnSync = func(s Sync) { last = s }
			})
		}
		check := func(when string, e *engine) {
			t.Helper()
			if err := e.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			there := w.installed(t, family)
			for table, rules := range there {
				labels := map[string]string{"table": string(table), "ip_family": string(family)}
				if reported := gauge(t, e.opts.Registry, "sync_proxy_rules_iptables_total", labels); reported != rules {
					t.Errorf("%s: %d rules reported in %s, %d in the kernel", when, reported, table, rules)
				}
				written := gauge(t, e.opts.Registry, "sync_proxy_rules_iptables_last", labels)
				if written > rules || last.Kind == Full && written != rules {
					t.Errorf("%s, %s: %d rules reported as written in %s, %d in the kernel", when, last.Kind, written, table, rules)
				}
			}
		}
		e := next()
		for range 40 {
			c.step(e)
		}
		check("first", e)
		for range 3 {
			for range 10 {
				c.step(e)
			}
			check("partial", e)
		}
		for range 30 {
			c.step(e)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = e.sync(ctx)
		check("after a failure", e)
		for range 2 {
			e = next()
			c.tell(e)
			for range 20 {
				c.step(e)
			}
			check("restarted", e)
			e.demandFull("drift")
			check("again", e)
		}
	})
}
