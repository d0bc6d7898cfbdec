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

	"synclab/bench/mirror"
	"synclab/bench/seeds"
	"synclab/bench/upstream"
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
		t.Skip("no kube-proxy here; 'make kube-proxy' builds it")
	case err != nil:
		t.Fatal(err)
	}
	api, err := front.New(p.cluster, front.Options{Clock: clock.RealClock{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	listener, err := net.Listen("tcp", "127.0.0.1:0") // in this goroutine's namespace
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- api.Serve(ctx, listener) }()
	t.Cleanup(func() { cancel(); <-served })

	dir := t.TempDir()
	write := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kubeconfig, err := front.Kubeconfig("http://"+listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	config := write("config.yaml", fmt.Appendf(nil, `apiVersion: kubeproxy.config.k8s.io/v1alpha1
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
`, mode, p.opts.Node.Name, write("kubeconfig", kubeconfig)))
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
	var log bytes.Buffer
	cmd := exec.Command(binary, "--config", config)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	running, end := context.WithCancelCause(t.Context())
	p.running = running
	go func() {
		end(fmt.Errorf("kube-proxy exited: %w", cmp.Or(cmd.Wait(), errors.New("status 0"))))
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("kube-proxy:\n%s", log.Bytes()[max(0, log.Len()-4000):])
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
	seed := seeds.Of(t)
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
	seed := seeds.Of(t)
	for i, x := range []struct{ mode, variant, reader string }{
		{"nftables", "", Nftables}, {"iptables", "nft", IptablesNft}, {"iptables", "legacy", IptablesLegacy}, {"ipvs", "", IPVS},
	} {
		t.Run(x.reader, func(t *testing.T) {
			needIPVS(t, x.reader)
			cluster := random.New(random.Options{Seed: seed + uint64(i)})
			objects := cluster.Objects()
			// If namespace, name and port name together exceed 128 characters, nft rejects the comment that kube-proxy
			// up to 1.36 makes of them, and with it every sync.
			long := func(s *corev1.Service) bool { return x.mode == "nftables" && len(s.Namespace) == 63 }
			objects.Services = slices.DeleteFunc(objects.Services, long)
			// When a slice moves to another Service, kube-proxy also keeps its endpoints at the first Service.
			relabelled := relabelled{}
			for _, s := range objects.Slices {
				relabelled.holds(s)
			}
			// If two slices of a Service have an address, kube-proxy picks one of the endpoints at random (address-twice).
			once := addressOnce{}
			for i, s := range objects.Slices {
				objects.Slices[i] = once.keep(s)
			}
			p := newPlay(t, objects, x.reader)
			p.kubeProxy(x.mode, x.variant)
			p.wait()
			for range 10 {
				for _, c := range cluster.Next() {
					if svc, ok := c.Object.(*corev1.Service); ok && long(svc) || relabelled.holds(c.Object) {
						continue
					}
					if slice, ok := c.Object.(*discoveryv1.EndpointSlice); ok && c.Op == sim.Delete {
						once.release(slice)
					} else if ok {
						c.Object = once.keep(slice)
					}
					p.change(c)
				}
				p.wait()
			}
			p.check()
		})
	}
}

// addressOnce maps the addresses of a Service's endpoints, "namespace/service/address", to the slice that has them.
type addressOnce map[string]string

// keep returns a copy of a slice without the addresses that another slice of the Service has.
func (a addressOnce) keep(slice *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	a.release(slice)
	slice = slice.DeepCopy()
	slice.Endpoints = slices.DeleteFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		addr, _ := sim.ParseAddr(e.Addresses[0])
		key := slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName] + "/" + addr.String()
		if holder, known := a[key]; known && holder != slice.Name {
			return true
		}
		a[key] = slice.Name
		return false
	})
	return slice
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
