package check

import (
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/verify/invariants"
)

// healthPorts are the health check NodePorts of some Services at some addresses of the node, as a list has them.
func healthPorts(services, addresses int) (all []invariants.HealthPort) {
	for i := range services {
		for j := range addresses {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(j + 1)}), uint16(30000+i))
			all = append(all, invariants.HealthPort{Service: types.NamespacedName{Namespace: "ns", Name: fmt.Sprintf("web-%05d", i)}, At: at})
		}
	}
	return all
}

// Of a long list, one address of each Service comes first, and all addresses have a part. If even that is too much, the
// Services are from the whole list.
func TestSpread(t *testing.T) {
	for _, c := range []struct{ services, addresses, most, wantServices, wantAddresses int }{
		{3, 2, 10, 3, 2}, {4, 3, 4, 4, 3}, {100, 3, 150, 100, 3}, {1000, 2, 100, 100, 2},
	} {
		all := healthPorts(c.services, c.addresses)
		got := spread(all, c.most, 1)
		once := map[invariants.HealthPort]bool{}
		services, addresses := map[string]bool{}, map[netip.Addr]bool{}
		last := 0
		for _, port := range got {
			once[port] = true
			if services[port.Service.Name] && len(services) < c.wantServices {
				t.Errorf("%+v: %s is asked again after %d Services", c, port.Service, len(services))
			}
			services[port.Service.Name], addresses[port.At.Addr()] = true, true
			last = max(last, int(port.At.Port())-30000)
		}
		if want := min(len(all), c.most); len(got) != want || len(once) != want || len(services) != c.wantServices || len(addresses) != c.wantAddresses || last < c.services*9/10 {
			t.Errorf("%+v: %d, %d different, %d Services, %d addresses, the last is Service %d", c, len(got), len(once), len(services), len(addresses), last)
		}
	}
	if got := spread(nil, 10, 1); len(got) != 0 {
		t.Error(got)
	}
}

// If packets are dropped, every question takes its whole time: a check stops after some of them.
func TestSilentHealthPorts(t *testing.T) {
	ports := healthPorts(500, 1)
	var asked atomic.Int32
	answers := askAll(ports, func(port invariants.HealthPort) invariants.HealthAnswer {
		asked.Add(1)
		return invariants.HealthAnswer{HealthPort: port, Err: errors.New("i/o timeout")}
	})
	if n := int(asked.Load()); n < mostSilent || n > mostSilent+askedAtOnce || len(answers) != n {
		t.Errorf("%d were asked, %d answers", n, len(answers))
	}
	for _, a := range answers {
		if a.Err == nil {
			t.Errorf("an answer of one that was not asked: %+v", a)
		}
	}
	answers = askAll(ports, func(port invariants.HealthPort) invariants.HealthAnswer {
		return invariants.HealthAnswer{HealthPort: port, Status: 200}
	})
	if len(answers) != len(ports) || answers[len(ports)-1].HealthPort != ports[len(ports)-1] {
		t.Errorf("%d answers", len(answers))
	}
}

// A check says how many it asked, unless it asked all.
func TestAskedText(t *testing.T) {
	for _, c := range []struct {
		asked, all int
		want       string
	}{
		{2, 2, ""},
		{2000, 5000, "I14 is checked at 2000 of 5000 health check NodePorts and addresses: a check asks 2000 at most"},
		{33, 5000, "I14 is checked at 33 of 5000 health check NodePorts and addresses: 32 gave no answer, and the others were not asked"},
		{33, 500, "I14 is checked at 33 of 500 health check NodePorts and addresses: 32 gave no answer, and the others were not asked"},
	} {
		if got := askedText(c.asked, c.all); got != c.want {
			t.Errorf("%d of %d: %q, want %q", c.asked, c.all, got, c.want)
		}
	}
}
