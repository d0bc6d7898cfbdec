package traffic

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"synclab/internal/inet"
)

// Clients make connections straight to a pod, and through a rule that translates the address: each is completed. In bulk, each makes one. A refused connection is an error.
func TestLoop(t *testing.T) {
	p, clients := newPods(t)
	rules(t, v4, "*nat\n-A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to-destination 10.128.0.5:8080\nCOMMIT\n")
	for _, to := range []string{"10.128.0.5:8080", "[fd00:10:128::5]:8081", "10.96.0.1:80"} {
		o := Loop{To: netip.MustParseAddrPort(to), Clients: 3, For: 100 * time.Millisecond}
		for _, client := range clients {
			if inet.FamilyOf(client) == inet.FamilyOf(o.To.Addr()) {
				o.From = append(o.From, client)
			}
		}
		done, err := p.Loop(o)
		if err != nil {
			t.Fatal(err)
		}
		if done.Connections < o.Clients || done.Bytes != 0 || done.CPU < 0 || done.Took < o.For {
			t.Errorf("%s: %+v", to, done)
		}
		o.Bulk = true
		if done, err = p.Loop(o); err != nil {
			t.Fatal(err)
		}
		if done.Connections != o.Clients || done.Bytes == 0 {
			t.Errorf("%s in bulk: %+v", to, done)
		}
	}
}

// A connection that is refused fails the loop, with its address.
func TestLoopRefused(t *testing.T) {
	p, clients := newPods(t)
	_, err := p.Loop(Loop{To: netip.MustParseAddrPort("10.128.0.5:9"), From: clients[:2], Clients: 1, For: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "connection to 10.128.0.5:9: connection refused") {
		t.Errorf("%v", err)
	}
}

// A loop of bounded length counts the connections of each endpoint.
func TestLoopCountsEndpoints(t *testing.T) {
	p, clients := newPods(t)
	rules(t, v4, "*nat\n-A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -m statistic --mode nth --every 4 --packet 0 -j DNAT --to-destination 10.128.0.6:8081\n"+
		"-A PREROUTING -d 10.96.0.1 -p tcp --dport 80 -j DNAT --to-destination 10.128.0.5:8080\nCOMMIT\n")
	done, err := p.Loop(Loop{To: netip.MustParseAddrPort("10.96.0.1:80"), From: clients[:2], Clients: 1, For: time.Minute, Most: 150})
	few, most := done.By[netip.MustParseAddrPort("10.128.0.6:8081")], done.By[netip.MustParseAddrPort("10.128.0.5:8080")]
	// Of the 50 connections before, which show how the kernel counts, every fourth is the first one's too.
	if err != nil || done.Connections != 150 || few+most != 150 || few < 37 || few > 38 {
		t.Errorf("%v: %+v", err, done)
	}
}
