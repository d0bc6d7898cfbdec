package visible

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/upstream"
	"synclab/internal/inet"
	"synclab/internal/seedstest"
	"synclab/sim"
)

// cilium starts Cilium's load balancer control plane from the cache, in the goroutine's namespace, on the play's cluster.
func (p *play) cilium() *os.Process {
	t := p.t
	t.Helper()
	paths, err := upstream.Cilium(t.Context(), upstream.Options{CachedOnly: true})
	switch {
	case errors.Is(err, upstream.ErrNotBuilt):
		t.Skip("no cilium-lb here; 'synclab build cilium' builds it")
	case err != nil:
		t.Fatal(err)
	}
	if err := netns.MountBPF(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(paths.Control, "--k8s-kubeconfig-path="+p.serve(t.TempDir()))
	cmd.Env = append(os.Environ(), "K8S_NODE_NAME="+p.opts.Node.Name)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.start(cmd)
	if _, err := stdin.Write([]byte("hive/start\n")); err != nil {
		t.Fatal(err)
	}
	return cmd.Process
}

func needBPF(t *testing.T) {
	t.Helper()
	if err := HasBPF(); err != nil {
		t.Skip(err)
	}
}

// Changes of random clusters become visible in Cilium's maps. The clusters have no external addresses: if Services share
// one, Cilium ignores one of the Services.
func TestCiliumRandomClusters(t *testing.T) {
	needBPF(t)
	once, relabelled := addressOnce{}, relabelled{}
	playRandom(t, randomPlay{
		seed: seedstest.Of(t), reader: Cilium, start: func(p *play) { p.cilium() },
		keep: func(c *sim.Change) bool {
			if relabelled.holds(c.Object) {
				return false
			}
			once.change(c)
			switch object := c.Object.DeepCopyObject().(type) {
			case *corev1.Service:
				object.Spec.ExternalIPs, object.Status.LoadBalancer = nil, corev1.LoadBalancerStatus{}
				for i, addr := range object.Spec.ClusterIPs {
					object.Spec.ClusterIPs[i] = ciliumAddr(addr)
				}
				object.Spec.ClusterIP = ciliumAddr(object.Spec.ClusterIP)
				for i := range object.Spec.Ports {
					object.Spec.Ports[i].Name = ciliumPortName(object.Spec.Ports[i].Name)
				}
				c.Object = object
			case *discoveryv1.EndpointSlice:
				for i := range object.Endpoints {
					asCilium(&object.Endpoints[i])
				}
				object.Endpoints = lastOfAddress(object.Endpoints)
				for i := range object.Ports {
					object.Ports[i].Name = ptr.To(ciliumPortName(ptr.Deref(object.Ports[i].Name, "")))
				}
				c.Object = object
			}
			return true
		},
	})
}

// asCilium removes what Cilium treats in another way than kube-proxy: hints for zones and nodes, which it ignores by
// default, all but the first address, and endpoints without a node, which are local for it.
func asCilium(ep *discoveryv1.Endpoint) {
	ep.Hints, ep.Addresses = nil, []string{ciliumAddr(ep.Addresses[0])}
	if ep.NodeName == nil {
		gone := "gone"
		ep.NodeName = &gone
	}
}

// lastOfAddress keeps the last endpoint of each address. Cilium keeps one for an address, kube-proxy the best.
func lastOfAddress(endpoints []discoveryv1.Endpoint) (out []discoveryv1.Endpoint) {
	for i := range endpoints {
		same := func(later discoveryv1.Endpoint) bool { return later.Addresses[0] == endpoints[i].Addresses[0] }
		if !slices.ContainsFunc(endpoints[i+1:], same) {
			out = append(out, endpoints[i])
		}
	}
	return out
}

// ciliumAddr spells an address canonically: Cilium takes none with leading zeros. Other texts stay.
func ciliumAddr(text string) string {
	if addr, ok := inet.ParseAddr(text); ok {
		return addr.String()
	}
	return text
}

// ciliumPortName gives a port without a name one. Cilium takes no name for any name: a Service's port without a name has
// the endpoints of all the slices' ports of its protocol, and a slice's port without a name is for all the Service's.
func ciliumPortName(name string) string { return cmp.Or(name, "none") }

// The maps of a process count from when it has them until it exits; those of another process are not mistaken for them.
func TestCiliumOwner(t *testing.T) {
	needBPF(t)
	shape := mixed
	shape.TopologyHints = 0 // see asCilium
	world := newWorld(t, shape, 1)
	p := newPlay(t, world.Objects(), Cilium)
	process := p.cilium()
	p.wait()
	in, err := p.Installed(t.Context())
	if err != nil || in[corev1.IPv4Protocol].Rules[ciliumTable] < mixed.Services {
		t.Errorf("installed %+v, %v; want %d Services", in, err, mixed.Services)
	}
	if pid := p.ciliumOwner(); pid != process.Pid {
		t.Errorf("the maps are of process %d, want %d", pid, process.Pid)
	}
	if err := process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-p.running.Done()
	if pid := p.ciliumOwner(); pid != 0 {
		t.Errorf("after the end of the process, maps of process %d count", pid)
	}
}

// ciliumOwner returns the process whose maps count now; 0: none.
func (p *play) ciliumOwner() (pid int) {
	p.t.Helper()
	reader := p.reader.(*ciliumReader)
	err := p.do(func() {
		if _, err := reader.Generation(); err != nil {
			p.t.Error(err)
		}
		pid = reader.owner.pid
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}
