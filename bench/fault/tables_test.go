package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

func TestFlushTable(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			t.Run(fmt.Sprintf("%s/%s", variant, family), func(t *testing.T) {
				netns.Fresh(t)
				restore := func() {
					rigtest.Run(t, "*nat\n:A - [0:0]\n-A OUTPUT -j A\nCOMMIT\n*filter\n:B - [0:0]\n-A OUTPUT -j B\nCOMMIT\n",
						iptables.Binary(variant, family, "restore"))
				}
				count := func(table string) string {
					t.Helper()
					tally, err := kernel.Tally(string(variant), family, table)
					if err != nil {
						t.Fatal(err)
					}
					rules, chains := 0, 0
					for chain, n := range tally {
						rules += n
						if chain == "A" || chain == "B" {
							chains++
						}
					}
					return fmt.Sprintf("%d rules, %d chains", rules, chains)
				}
				restore()
				if err := flushTable(t.Context(), variant, family, "nat"); err != nil {
					t.Fatal(err)
				}
				if got, want := count("nat"), "0 rules, 0 chains"; got != want {
					t.Errorf("nat after the flush: %s, want %s", got, want)
				}
				if got, want := count("filter"), "1 rules, 1 chains"; got != want {
					t.Errorf("filter after nat's flush: %s, want %s", got, want)
				}
				restore()
				if err := flushTable(t.Context(), variant, family, "all"); err != nil {
					t.Fatal(err)
				}
				for _, table := range []string{"nat", "filter"} {
					if got, want := count(table), "0 rules, 0 chains"; got != want {
						t.Errorf("%s after the flush of all: %s, want %s", table, got, want)
					}
				}
			})
		}
	}
}

// No other process gets the lock until it is released. Waiting for it ends with the context.
func TestTakeLock(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	path := filepath.Join(t.TempDir(), "xtables.lock")
	release, err := takeLock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := try(path); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the lock while held: %v, want %v", err, unix.EWOULDBLOCK)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := takeLock(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("takeLock = %v, want %v", err, context.Canceled)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
	if err := try(path); err != nil {
		t.Errorf("the lock afterwards: %v", err)
	}
}

func try(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}

// Nothing that changes rules or flows works in the lab's start namespace.
func TestRefusesOutsideTheLab(t *testing.T) {
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{"", here} {
		t.Setenv("SYNCLAB_PARENT_NETNS", parent)
		_, locked := takeLock(t.Context(), filepath.Join(t.TempDir(), "lock"))
		for name, err := range map[string]error{
			"flushTable": flushTable(t.Context(), iptables.Legacy, corev1.IPv4Protocol, "nat"),
			"takeLock":   locked,
			"Connect":    (&netns.Lab{}).Connect(netns.Topology{}),
		} {
			if err == nil || !strings.Contains(err.Error(), "refusing to work") {
				t.Errorf("%s with parent namespace %q: %v; want a refusal", name, parent, err)
			}
		}
	}
}
