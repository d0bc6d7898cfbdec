package proxier

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/kernel"
	"synclab/proxier/plan"
)

var eventsFlag = flag.Int("events", 10000, "random events on the model of the tables")

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// testEngine is a proxier's engine. The test passes events to it and calls its syncs.
func testEngine(t testing.TB, family corev1.IPFamily, tables iptables.Tables, change func(*Options)) *engine {
	t.Helper()
	opts := Options{
		Config:   config.New(),
		Families: []corev1.IPFamily{family},
		Machine:  Machine{RandomFully: true, BPF: true},
		Tables:   func(corev1.IPFamily) (iptables.Tables, error) { return tables, nil },
	}
	opts.Config.ClusterCIDR = "10.128.0.0/9,fd00:128::/64"
	if change != nil {
		change(&opts)
	}
	p, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	p.engines[0].setNode(plan.Node{Name: "node-0", Zone: "zone-0"})
	return p.engines[0]
}

func saved(t testing.TB, m *iptables.Model) string {
	t.Helper()
	var b bytes.Buffer
	if err := m.Save(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// fresh returns the tables after a full sync of the same objects on empty tables.
func fresh(t testing.TB, c *randomCluster) string {
	t.Helper()
	model := iptables.NewModel(c.family)
	e := testEngine(t, c.family, model, nil)
	c.tell(e)
	if err := e.sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	return saved(t, model)
}

// After any events, some of them in failed syncs, the tables are those that a fresh start would write.
func TestPartialEqualsFull(t *testing.T) {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		t.Run(string(family), func(t *testing.T) {
			t.Parallel()
			s := seedstest.Of(t)
			c := newRandomCluster(s, family)
			faults := rand.New(rand.NewPCG(s, 2))
			model := iptables.NewModel(family)
			e := testEngine(t, family, model, nil)
			kinds := map[Kind]int{}
			e.opts.OnSync = func(s Sync) { kinds[s.Kind]++ }
			for n := range *eventsFlag {
				c.step(e)
				if n%3 != 0 {
					continue
				}
				model.Fail = nil
				if faults.Float64() < 0.1 {
					model.Fail = func(*iptables.Payload) error { return errors.New("the tool was killed") }
				}
				failing := model.Fail != nil
				if err := e.sync(t.Context()); err != nil != (failing && err != nil) {
					t.Fatalf("event %d: %v", n, err)
				}
				if n%60 == 0 {
					model.Fail = nil
					if err := e.sync(t.Context()); err != nil {
						t.Fatal(err)
					}
					if diff := cmp.Diff(strings.Split(fresh(t, c), "\n"), strings.Split(saved(t, model), "\n")); diff != "" {
						t.Fatalf("event %d (-fresh +partial):\n%s", n, diff)
					}
				}
			}
			if kinds[Partial] < *eventsFlag/4 || kinds[Full] == 0 {
				t.Errorf("syncs by kind: %v; want mostly partial ones", kinds)
			}
		})
	}
}

// The kernel's tables equal the model's, in both variants and families, to the letter of iptables-save.
func TestKernelEqualsModel(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			t.Run(string(variant)+"/"+string(family), func(t *testing.T) {
				netns.Fresh(t)
				needsLargeRestores(t, variant)
				c := newRandomCluster(seedstest.Of(t), family)
				e := hostEngine(t, variant, family, nil)
				for n := range 600 {
					c.step(e)
					if n%10 == 9 {
						if err := e.sync(t.Context()); err != nil {
							t.Fatalf("event %d: %v", n, err)
						}
					}
					if n%200 == 199 {
						compareWithKernel(t, variant, c)
					}
				}
			})
		}
	}
}

// needsLargeRestores skips a test where the kernel limits a restore to a few hundred rules.
func needsLargeRestores(t *testing.T, variant iptables.Variant) {
	t.Helper()
	limit, err := kernel.SendLimit()
	if err != nil {
		t.Fatal(err)
	}
	if variant == iptables.Nft && limit > 0 {
		t.Skipf("the kernel limits an iptables-nft-restore of this user to %d bytes of netlink messages", limit)
	}
}

func hostEngine(t testing.TB, variant iptables.Variant, family corev1.IPFamily, change func(*iptables.RestorerOptions)) *engine {
	t.Helper()
	opts := iptables.RestorerOptions{Variant: variant, Family: family}
	if change != nil {
		change(&opts)
	}
	host, err := iptables.NewHost(opts)
	if err != nil {
		t.Skip(err)
	}
	return testEngine(t, family, host, func(o *Options) {
		o.Variant, o.Batch = variant, 50 // so that most syncs of these tests are staged
	})
}

func compareWithKernel(t *testing.T, variant iptables.Variant, c *randomCluster) {
	t.Helper()
	if diff := cmp.Diff(strings.Split(fresh(t, c), "\n"), strings.Split(kernelSaved(t, variant, c.family), "\n")); diff != "" {
		t.Fatalf("(-fresh full sync +kernel):\n%s", diff)
	}
}

func kernelSaved(t testing.TB, variant iptables.Variant, family corev1.IPFamily) string {
	t.Helper()
	binary, err := iptables.FindBinary(iptables.Binary(variant, family, "save"))
	if err != nil {
		t.Skip(err)
	}
	out, err := exec.Command(binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := rule.ParseTables(family, out)
	if err != nil {
		t.Fatal(err)
	}
	return saved(t, iptables.ModelOf(family, tables))
}
