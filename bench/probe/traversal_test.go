package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
)

// Every packet is a separate flow that crosses the rules. Table nat, which sees only the first packet of a flow, counts
// each once at OUTPUT and, if translated, at POSTROUTING. Nothing stays in conntrack.
func TestTraversalWalksTheRules(t *testing.T) {
	const samples, batch = 150, 100
	const warm = warmUp + 5*batchWarmUp // 450 packets of three targets in 5 batches
	for _, test := range []struct {
		tool, service, pod, miss string
		protocol                 corev1.Protocol
	}{
		{"iptables-legacy", "10.96.0.1", "10.128.0.1", "10.111.0.1", corev1.ProtocolUDP},
		{"iptables-nft", "10.96.0.1", "10.128.0.1", "10.111.0.1", corev1.ProtocolUDP},
		{"ip6tables-legacy", "fd00:10:96::1", "fd00:10:128::1", "fd00:10:96::ffff", corev1.ProtocolUDP},
		{"ip6tables-nft", "fd00:10:96::1", "fd00:10:128::1", "fd00:10:96::ffff", corev1.ProtocolUDP},
		{"iptables-legacy", "10.96.0.1", "10.128.0.1", "10.111.0.1", corev1.ProtocolTCP},
		{"ip6tables-nft", "fd00:10:96::1", "fd00:10:128::1", "fd00:10:96::ffff", corev1.ProtocolTCP},
	} {
		t.Run(test.tool+"/"+string(test.protocol), func(t *testing.T) {
			protocol := strings.ToLower(string(test.protocol))
			rigtest.Network(t)
			pod := netip.AddrPortFrom(netip.MustParseAddr(test.pod), 8080)
			rigtest.Run(t, fmt.Sprintf("*nat\n:SERVICES - [0:0]\n-A OUTPUT -j SERVICES\n"+
				"-A SERVICES -d %s -p %s -m %s --dport 80 -j DNAT --to-destination %s\n"+
				"-A POSTROUTING -d %s -j RETURN\nCOMMIT\n", test.service, protocol, protocol, pod, test.pod), test.tool+"-restore")
			service := netip.AddrPortFrom(netip.MustParseAddr(test.service), 80)
			miss := netip.AddrPortFrom(netip.MustParseAddr(test.miss), 80)
			got := map[int]int{}
			err := MeasureTraversal(t.Context(), TraversalOptions{
				Targets:  []Target{{Position: 1, Addr: service}, {Position: 2, Addr: service}, {Position: -1, Addr: miss}},
				Protocol: test.protocol, Samples: samples, Batch: batch, Rand: rand.New(rand.NewPCG(1, 2)),
			}, func(target *Target, d time.Duration) {
				got[target.Position]++
				if d <= 0 {
					t.Errorf("%s took %v", target, d)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if got[1] != samples || got[2] != samples || got[-1] != samples || len(got) != 3 {
				t.Errorf("samples by position: %v; want %d each of 1, 2, -1", got, samples)
			}
			if n := packets(t, test.tool, "OUTPUT"); n != 3*samples+warm {
				t.Errorf("OUTPUT counted %d packets, want %d", n, 3*samples+warm)
			}
			// Warm-up packets go to the targets in turn; two of three targets are translated.
			translated := 2*samples + 2*warmUp/3 + 5*2*batchWarmUp/3
			if n := packets(t, test.tool, "POSTROUTING"); n < translated || n > translated+6 {
				t.Errorf("POSTROUTING counted %d packets to the pod, want about %d", n, translated)
			}
			count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
			if err != nil || strings.TrimSpace(string(count)) != "0" {
				t.Errorf("conntrack count %q, %v; want 0", count, err)
			}
		})
	}
}

// packets returns the counter of the first rule of a nat chain.
func packets(t *testing.T, tool, chain string) int {
	t.Helper()
	lines := strings.Split(rigtest.Run(t, "", tool, "-t", "nat", "-nvxL", chain), "\n")
	n, err := strconv.Atoi(strings.Fields(lines[2])[0])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Same seed, same order; positions are interleaved.
func TestTraversalOrder(t *testing.T) {
	rigtest.Network(t)
	order := func(seed uint64) (positions []int) {
		to := netip.MustParseAddrPort("10.96.0.1:80")
		err := MeasureTraversal(t.Context(), TraversalOptions{
			Targets: []Target{{Position: 1, Addr: to}, {Position: 2, Addr: to}}, Samples: 50, Rand: rand.New(rand.NewPCG(seed, 0)),
		}, func(target *Target, _ time.Duration) { positions = append(positions, target.Position) })
		if err != nil {
			t.Fatal(err)
		}
		return positions
	}
	first := order(1)
	if again := order(1); !slices.Equal(first, again) {
		t.Error("same seed, another order")
	}
	if other := order(2); slices.Equal(first, other) {
		t.Error("another seed, the same order")
	}
	if slices.IsSorted(first) {
		t.Error("positions are not interleaved")
	}
}

func TestTraversalErrors(t *testing.T) {
	rigtest.Network(t)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	seeded := rand.New(rand.NewPCG(1, 2))
	to := []Target{{Position: 1, Addr: netip.MustParseAddrPort("10.96.0.1:80")}}
	nowhere := []Target{{Position: 3, Addr: netip.MustParseAddrPort("192.0.2.1:80")}}
	for _, test := range []struct {
		name    string
		ctx     context.Context
		options TraversalOptions
		want    string
	}{
		{"no targets", t.Context(), TraversalOptions{Rand: seeded}, "no targets"},
		{"no rand", t.Context(), TraversalOptions{Targets: to}, "randomness"},
		{"batch too large", t.Context(), TraversalOptions{Targets: to, Rand: seeded, Batch: 1 << 20}, "batches of at most"},
		{"no route", t.Context(), TraversalOptions{Targets: nowhere, Rand: seeded}, "position 3"},
		{"context ended", ended, TraversalOptions{Targets: to, Rand: seeded}, context.Canceled.Error()},
	} {
		// No t.Run: a subtest is another goroutine, outside the fresh namespace.
		err := MeasureTraversal(test.ctx, test.options, func(*Target, time.Duration) { t.Errorf("%s: a sample", test.name) })
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
	if err := MeasureTraversal(ended, TraversalOptions{Targets: to, Rand: seeded}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v does not wrap %v", err, context.Canceled)
	}
}

// The probe does not work in the lab's start namespace.
func TestRefusesOutsideTheLab(t *testing.T) {
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{"", here} {
		t.Setenv("SYNCLAB_PARENT_NETNS", parent)
		err := MeasureTraversal(t.Context(), TraversalOptions{
			Targets: []Target{{Position: 1, Addr: netip.MustParseAddrPort("10.96.0.1:80")}}, Rand: rand.New(rand.NewPCG(1, 2)),
		}, nil)
		if err == nil || !strings.Contains(err.Error(), "refusing to work") {
			t.Errorf("with parent namespace %q: %v; want a refusal", parent, err)
		}
	}
}
