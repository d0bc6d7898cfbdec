package verdictstest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/upstream"
	"synclab/bench/verify/conform"
	"synclab/internal/seedstest"
	"synclab/proxier/config"
	"synclab/sim"
	"synclab/sim/random"
)

// kubeProxy returns the path of a cached kube-proxy: a test cannot download one inside its namespace.
func kubeProxy(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: without kube-proxy")
	}
	path, _, err := upstream.KubeProxy(t.Context(), upstream.Options{CachedOnly: true})
	switch {
	case err == nil:
	case errors.Is(err, upstream.ErrNotBuilt) && os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") == "":
		t.Skip("no kube-proxy here; 'synclab build kube-proxy' builds it")
	default:
		t.Fatal(err)
	}
	return path
}

// perKubeProxy is the number of clusters for each kube-proxy process, in one setting.
const perKubeProxy = 10

// An unmodified kube-proxy gives every packet the same verdict, or one that an entry of docs/differences.md predicts.
// In mode nftables, entries of modes.go may predict it too.
func TestKubeProxy(t *testing.T) {
	command := kubeProxy(t)
	variants, err := conform.Variants()
	if err != nil {
		t.Skip(err)
	}
	var limit conform.Constraint
	if len(variants) == 1 {
		limit.Variant = variants[0]
	}
	for _, mode := range []v1alpha1.ProxyMode{config.ModeIPTables, config.ModeNFTables} {
		t.Run(string(mode), func(t *testing.T) {
			if _, err := exec.LookPath("nft"); mode == config.ModeNFTables && err != nil {
				t.Skip("nft is not installed")
			}
			count := &tally{t: t, excused: map[string]int{}}
			for some := range slices.Chunk(seedstest.Several(t, perKubeProxy), perKubeProxy) {
				if t.Failed() {
					break
				}
				setting := conform.DrawSetting(some[0], limit)
				if mode == config.ModeNFTables {
					setting = forNftables(setting)
				}
				l := life{t: t, count: count, mode: mode, setting: setting, seed: some[0]}
				l.through(command, len(some))
			}
			t.Log(count)
		})
	}
}

// forNftables adapts a setting so that it means the same in both modes. In mode nftables, NodePorts are never on
// loopback, and by default on the node's main address.
func forNftables(s conform.Setting) conform.Setting {
	s.Config.IPTables.LocalhostNodePorts = ptr.To(false)
	if len(s.Config.NodePortAddresses) == 0 {
		s.Config.NodePortAddresses = []string{"primary"}
	}
	return s
}

// life runs one kube-proxy through several clusters, one after the other.
type life struct {
	t       *testing.T
	count   *tally
	mode    v1alpha1.ProxyMode
	setting conform.Setting
	seed    uint64
	live    *conform.Live
}

func (l *life) through(command string, clusters int) {
	l.t.Helper()
	defer func() {
		if l.live != nil {
			l.live.Stop()
		}
	}()
	theirs := l.setting
	theirs.Config = theirs.Config.DeepCopy()
	theirs.Config.Mode = l.mode
	for i := range clusters {
		random := random.New(random.Options{Seed: l.seed + uint64(i), Families: l.setting.Families})
		l.count.begun()
		for step := range steps + 1 {
			what := fmt.Sprintf("seed %d, step %d", l.seed+uint64(i), step)
			if step > 0 {
				random.Next()
			}
			objects := l.digestible(random.Objects())
			var err error
			if l.live == nil {
				l.live, err = conform.StartLive(l.t.Context(), command, theirs, "node-0", objects)
			} else {
				err = l.live.Become(l.t.Context(), objects)
			}
			if err != nil {
				l.t.Fatalf("%s (%s): %v", what, l.setting, err)
			}
			l.compare(what)
			if l.t.Failed() {
				return
			}
		}
	}
}

// digestible removes Services with which kube-proxy's mode nftables fails permanently. kube-proxy makes comments of the
// Service's and the port's names, and nft rejects comments of more than 128 characters.
func (l *life) digestible(o *sim.Objects) *sim.Objects {
	if l.mode == config.ModeNFTables {
		o.Services = slices.DeleteFunc(o.Services, func(svc *corev1.Service) bool {
			return slices.ContainsFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return len(svc.Namespace+"/"+svc.Name+":"+p.Name) > 128 })
		})
	}
	return o
}

// look is the result of one comparison with kube-proxy's rules.
type look struct {
	packets     int
	excused     map[string]int
	unexplained []Difference
}

// A node's zone reaches kube-proxy through a watch that the signal does not cover. A difference therefore counts only
// if later syncs still show it.
const tries, between = 12, 150 * time.Millisecond

func (l *life) compare(what string) {
	l.t.Helper()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var seen *look
	for range tries {
		<-pause.C
		var err error
		if seen, err = l.look(l.t.Context()); err != nil {
			l.t.Fatalf("%s (%s): %v", what, l.setting, err)
		}
		if len(seen.unexplained) == 0 {
			break
		}
		pause.Reset(between)
	}
	l.count.states++
	l.count.packets += seen.packets
	l.count.differences += len(seen.unexplained)
	for entry, n := range seen.excused {
		l.count.excused[entry] += n
	}
	if len(seen.unexplained) > 0 {
		l.t.Errorf("%s (%s): %d of %d packets differ:\n%s", what, l.setting, len(seen.unexplained), seen.packets, Describe(seen.unexplained))
	}
}

func (l *life) look(ctx context.Context) (*look, error) {
	if err := l.live.Sync(ctx); err != nil {
		return nil, err
	}
	machine, err := l.live.Machine()
	if err != nil {
		return nil, err
	}
	s := &State{Setting: l.setting, Node: "node-0", Machine: machine, Objects: l.live.Objects()}
	read := readIptables
	if l.mode == config.ModeNFTables {
		read = readNftables
	}
	k, err := read(l.live, s)
	if err != nil {
		return nil, err
	}
	ours, err := Render(ctx, s, Classic)
	if err != nil {
		return nil, err
	}
	world, err := s.World()
	if err != nil {
		return nil, err
	}
	seen := &look{excused: map[string]int{}}
	for _, family := range both {
		packets, err := s.Packets(family, l.seed)
		if err != nil {
			return nil, err
		}
		found, err := Compare(family, world, packets, k.Ruleset, ours)
		if err != nil {
			return nil, err
		}
		seen.packets += len(packets)
		for i := range found {
			entry, err := k.explain(ctx, &found[i])
			switch {
			case errors.Is(err, errUnexplained):
				seen.unexplained = append(seen.unexplained, found[i])
			case err != nil:
				return nil, err
			default:
				seen.excused[entry]++
			}
		}
	}
	return seen, nil
}
