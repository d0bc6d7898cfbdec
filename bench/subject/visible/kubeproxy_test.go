package visible

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"synclab/bench/lab/upstream"
	"synclab/bench/mirror"
	"synclab/internal/inet"
	"synclab/internal/seedstest"
	"synclab/proxier/kernel"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/front"
	"synclab/sim/random"
)

// kubeProxy starts the pinned kube-proxy from the cache, in the goroutine's namespace, on the play's cluster.
func (p *play) kubeProxy(mode, variant string) {
	t := p.t
	t.Helper()
	binary, _, err := upstream.KubeProxy(t.Context(), upstream.Options{CachedOnly: true})
	switch {
	case errors.Is(err, upstream.ErrNotBuilt) && os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") == "":
		t.Skip("no kube-proxy here; 'synclab build kube-proxy' builds it")
	case err != nil:
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := p.write(dir, "config.yaml", fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %s
hostnameOverride: %s
clientConnection: {kubeconfig: %s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 10ms}
nftables: {minSyncPeriod: 10ms}
ipvs: {minSyncPeriod: 10ms}
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
oomScoreAdj: 0
`, mode, p.opts.Node.Name, p.serve(dir)))
	if variant != "" {
		for _, name := range []string{"iptables", "ip6tables"} {
			for _, tool := range []string{"", "-save", "-restore"} {
				target, err := exec.LookPath(name + "-" + variant + tool)
				if err != nil {
					t.Skip(err)
				}
				if err := os.Symlink(target, filepath.Join(dir, name+tool)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	cmd := exec.Command(binary, "--config", config)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	p.start(cmd)
}

func (p *play) write(dir, name string, text []byte) string {
	p.t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		p.t.Fatal(err)
	}
	return path
}

// serve starts the fake API server of the play's cluster in the goroutine's namespace. It returns the kubeconfig's path.
func (p *play) serve(dir string) string {
	t := p.t
	t.Helper()
	api, err := front.New(p.cluster, front.Options{Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, listener) }()
	t.Cleanup(func() { cancel(); <-served })
	kubeconfig, err := front.Kubeconfig("http://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.write(dir, "kubeconfig", kubeconfig)
}

// start runs a subject until the test ends.
func (p *play) start(cmd *exec.Cmd) {
	t := p.t
	t.Helper()
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	running, end := context.WithCancelCause(t.Context())
	p.running = running
	go func() {
		end(fmt.Errorf("the subject exited: %w", cmp.Or(cmd.Wait(), errors.New("status 0"))))
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("the subject:\n%s", log.Bytes()[max(0, log.Len()-4000):])
		}
	})
}

// needIPVS skips a test with IPVS on a kernel without it.
func needIPVS(t *testing.T, reader string) {
	t.Helper()
	if err := HasIPVS(); err != nil && reader == IPVS {
		t.Skip(err)
	}
}

// Random changes become visible with an unmodified kube-proxy in all of its modes, without reports of its tools.
func TestKubeProxy(t *testing.T) {
	seed := seedstest.Of(t)
	for _, x := range []struct{ mode, variant, reader string }{
		{"nftables", "", Nftables}, {"nftables", "", ""}, {"iptables", "nft", IptablesNft}, {"iptables", "legacy", IptablesLegacy}, {"ipvs", "", IPVS},
	} {
		t.Run(fmt.Sprintf("mode=%s/variant=%s/reader=%s", x.mode, x.variant, x.reader), func(t *testing.T) {
			needIPVS(t, x.reader)
			rng := rand.New(rand.NewPCG(seed, 1))
			shape := mixed
			if limit, err := kernel.SendLimit(); err != nil {
				t.Fatal(err)
			} else if x.variant == "nft" && limit > 0 {
				shape.Services = 10 // an ordinary user's iptables-nft-restore can send this many at once
			}
			world := newWorld(t, shape, seed)
			p := newPlay(t, world.Objects(), x.reader)
			p.kubeProxy(x.mode, x.variant)
			p.wait()
			trace, err := world.Churn(scenarios.Churn{Rate: 1, Events: 60, Kind: "mixed"})
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range trace {
				p.change(c)
				if i == len(trace)-1 || rng.IntN(8) == 0 {
					p.wait()
				}
			}
			p.check()
			if err := p.Quiet(t.Context(), 100*time.Millisecond); err != nil {
				t.Error(err)
			}
			in, err := p.Installed(t.Context())
			t.Logf("%d of %d changes awaited; installed %+v, %v", len(p.awaited), len(trace), in, err)
		})
	}
}

// The same for random clusters with unusual objects.
func TestKubeProxyRandomClusters(t *testing.T) {
	seed := seedstest.Of(t)
	for i, x := range []struct{ mode, variant, reader string }{
		{"nftables", "", Nftables}, {"iptables", "nft", IptablesNft}, {"iptables", "legacy", IptablesLegacy}, {"ipvs", "", IPVS},
	} {
		t.Run(x.reader, func(t *testing.T) {
			needIPVS(t, x.reader)
			// If namespace, name and port name together exceed 128 characters, nft rejects the comment that kube-proxy
			// up to 1.36 makes of them, and with it every sync.
			long := func(s *corev1.Service) bool { return x.mode == "nftables" && len(s.Namespace) == 63 }
			// When a slice moves to another Service, kube-proxy also keeps its endpoints at the first Service.
			relabelled := relabelled{}
			// If two slices of a Service have an address, kube-proxy picks one of the endpoints at random (address-twice).
			once := addressOnce{}
			playRandom(t, randomPlay{
				seed: seed + uint64(i), reader: x.reader,
				start: func(p *play) { p.kubeProxy(x.mode, x.variant) },
				keep: func(c *sim.Change) bool {
					svc, ok := c.Object.(*corev1.Service)
					return !(ok && long(svc) || relabelled.holds(c.Object)) && once.change(c)
				},
			})
		})
	}
}

// randomPlay is a random cluster for a subject. keep may alter a change, and reports whether it shall happen.
type randomPlay struct {
	seed   uint64
	reader string
	start  func(*play)
	keep   func(*sim.Change) bool
}

// playRandom waits for changes of a random cluster.
func playRandom(t *testing.T, r randomPlay) {
	cluster := random.New(random.Options{Seed: r.seed})
	all := cluster.Objects()
	objects := &sim.Objects{Nodes: all.Nodes}
	for _, s := range all.Slices {
		if c := (sim.Change{Op: sim.Add, Object: s}); r.keep(&c) {
			objects.Slices = append(objects.Slices, c.Object.(*discoveryv1.EndpointSlice))
		}
	}
	for _, s := range all.Services {
		if c := (sim.Change{Op: sim.Add, Object: s}); r.keep(&c) {
			objects.Services = append(objects.Services, c.Object.(*corev1.Service))
		}
	}
	p := newPlay(t, objects, r.reader)
	r.start(p)
	p.wait()
	for range 10 {
		for _, c := range cluster.Next() {
			if r.keep(&c) {
				p.change(c)
			}
		}
		p.wait()
	}
	p.check()
}

// addressOnce maps the addresses of a Service's endpoints, "namespace/service/address", to the slice that has them.
type addressOnce map[string]string

// keep returns a copy of a slice without the addresses that another slice of the Service has.
func (a addressOnce) keep(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	a.release(slice)
	slice = slice.DeepCopy()
	slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		addr, _ := inet.ParseAddr(e.Addresses[0])
		key := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName] + "/" + addr.String()
		if holder, known := a[key]; known && holder != slice.Name {
			return true
		}
		a[key] = slice.Name
		return false
	})
	return slice
}

// change keeps a slice of a change, or forgets it if it is deleted.
func (a addressOnce) change(c *sim.Change) bool {
	if slice, ok := c.Object.(*discoveryv1.EndpointSlice); ok && c.Op == sim.Delete {
		a.release(slice)
	} else if ok {
		c.Object = a.keep(slice)
	}
	return true
}

// release forgets the addresses of a slice.
func (a addressOnce) release(slice *discoveryv1.EndpointSlice) {
	maps.DeleteFunc(a, func(key, holder string) bool {
		return holder == slice.Name && strings.HasPrefix(key, slice.Namespace+"/")
	})
}

// relabelled maps slices to their first owner, or to the empty owner if the owner has changed.
type relabelled map[string]mirror.Owner

func (r relabelled) holds(o runtime.Object) bool {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return false
	}
	now := mirror.OwnerOf(s)
	if first, known := r[s.Namespace+"/"+s.Name]; known && first != now {
		now = mirror.Owner{}
	}
	r[s.Namespace+"/"+s.Name] = now
	return now == mirror.Owner{}
}
