package invariants

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/config"
	"synclab/proxier/tracker"
)

// HealthPort is the health check NodePort of a Service at one address of the node.
type HealthPort struct {
	Service types.NamespacedName
	At      netip.AddrPort
	// Ready is the number of addresses of ready endpoints on this node, in the family of At.
	Ready int
}

// HealthAnswer is the answer of a health check NodePort to an HTTP request.
type HealthAnswer struct {
	HealthPort
	Err    error // there was no answer
	Status int
	Header http.Header
	Body   []byte
}

// weightHeader has the number of ready endpoints, for load balancers that weigh nodes.
const weightHeader = "X-Load-Balancing-Endpoint-Weight"

// HealthPorts returns where the health check NodePorts must answer: at each address of the node's device that takes
// NodePorts. It makes the list once.
func (e *Evidence) HealthPorts() ([]HealthPort, error) {
	if e.healthPorts != nil {
		return e.healthPorts, nil
	}
	all := []HealthPort{}
	taken := e.takenPorts()
	for _, family := range e.Families {
		addrs, err := e.healthAddresses(family)
		if err != nil {
			return nil, err
		}
		for name, svc := range e.plan(family).Services() {
			if len(svc.Ports) == 0 || svc.Ports[0].HealthCheckNodePort == 0 || taken[svc.Ports[0].HealthCheckNodePort] > 1 {
				continue
			}
			ready := readyHere(svc)
			for _, addr := range addrs {
				all = append(all, HealthPort{name, netip.AddrPortFrom(addr, svc.Ports[0].HealthCheckNodePort), ready})
			}
		}
	}
	slices.SortFunc(all, func(a, b HealthPort) int {
		return cmp.Or(strings.Compare(a.Service.String(), b.Service.String()), a.At.Compare(b.At))
	})
	e.healthPorts = all
	return all, nil
}

// takenPorts counts the Services that use a TCP port of the node. Where several do, it is not known which one gets it.
func (e *Evidence) takenPorts() map[uint16]int {
	taken := map[uint16]int{}
	for _, svc := range e.Objects.Services {
		if port := svc.Spec.HealthCheckNodePort; port > 0 {
			taken[uint16(port)]++
		}
		for i := range svc.Spec.Ports {
			if port := &svc.Spec.Ports[i]; port.NodePort > 0 && (port.Protocol == "" || port.Protocol == corev1.ProtocolTCP) {
				taken[uint16(port.NodePort)]++
			}
		}
	}
	return taken
}

// healthAddresses returns the addresses of the node's device at which health check NodePorts listen. Those that the
// subject adds to devices of its own, such as cluster IPs, are the Services'. kube-proxy's mode nftables takes the node's
// primary addresses if the configuration names none.
func (e *Evidence) healthAddresses(family corev1.IPFamily) ([]netip.Addr, error) {
	cfg := e.Options.Config
	if !e.Subject.Own && e.Subject.Nftables() && len(cfg.NodePortAddresses) == 0 {
		cfg = cfg.DeepCopy()
		cfg.NodePortAddresses = []string{"primary"}
	}
	ports, err := config.NodePortAddresses(cfg, family, e.Options.NodeIPs)
	if err != nil {
		return nil, err
	}
	addrs, _ := ports.Select(e.Node)
	return slices.DeleteFunc(addrs, netip.Addr.IsLinkLocalUnicast), nil // these need a zone
}

// readyHere counts the addresses of a Service's ready endpoints on this node. Terminating endpoints do not count.
func readyHere(svc *tracker.Service) int {
	addrs := map[netip.Addr]bool{}
	for _, port := range svc.Endpoints {
		for _, ep := range port.List {
			if ep.Local && ep.Ready {
				addrs[ep.Addr.Addr()] = true
			}
		}
	}
	return len(addrs)
}

// AnswersHealth reports whether the subject is known to serve health check NodePorts, or has answered at one.
func (e *Evidence) AnswersHealth() bool {
	return e.Subject.HealthPorts || slices.ContainsFunc(e.HealthAnswers, func(a HealthAnswer) bool { return a.Err == nil })
}

// checkHealthPorts: each health check NodePort answers at every address, with the number of ready endpoints.
func checkHealthPorts(_ context.Context, e *Evidence, r *report) error {
	for i := range e.HealthAnswers {
		a := &e.HealthAnswers[i]
		r.checked++
		if wrong := a.wrong(e); wrong != "" {
			r.violated(a.Service.String(), "health check NodePort %s: %s", a.At, wrong)
		}
	}
	return nil
}

// wrong says what is wrong with an answer; empty: nothing.
func (a *HealthAnswer) wrong(e *Evidence) string {
	if a.Err != nil {
		return fmt.Sprintf("no answer: %v", a.Err)
	}
	var body struct {
		Service             struct{ Namespace, Name string }
		LocalEndpoints      *int
		ServiceProxyHealthy *bool
	}
	if err := json.Unmarshal(a.Body, &body); err != nil {
		return fmt.Sprintf("the body %.80q is not the JSON of a health check: %v", a.Body, err)
	}
	weights := a.Header.Values(weightHeader)
	healthy := body.ServiceProxyHealthy
	want := http.StatusServiceUnavailable
	if a.Ready > 0 && (healthy == nil || *healthy) {
		want = http.StatusOK
	}
	switch {
	case body.Service.Namespace != a.Service.Namespace || body.Service.Name != a.Service.Name:
		return fmt.Sprintf("it answers for Service %s/%s", body.Service.Namespace, body.Service.Name)
	case body.LocalEndpoints == nil || *body.LocalEndpoints != a.Ready:
		return fmt.Sprintf("localEndpoints is %s, not %d", textOf(body.LocalEndpoints), a.Ready)
	case healthy == nil && !e.Subject.OldHealthPorts:
		return "serviceProxyHealthy is missing"
	case healthy != nil && !*healthy && e.Settled == nil && e.Health == http.StatusOK:
		return "serviceProxyHealthy is false, although the subject has converged and /healthz returns 200"
	case a.Status != want:
		return fmt.Sprintf("status %d with %d ready endpoints on this node, not %d", a.Status, a.Ready, want)
	case len(weights) == 0 && e.Subject.OldHealthPorts:
	case len(weights) != 1 || weights[0] != strconv.Itoa(a.Ready):
		return fmt.Sprintf("header %s is %q, not %d", weightHeader, weights, a.Ready)
	}
	return ""
}

func textOf(n *int) string {
	if n == nil {
		return "missing"
	}
	return strconv.Itoa(*n)
}

// dueHealthPorts requires answers from subjects that are known to serve health check NodePorts, if a Service has one.
func dueHealthPorts(e *Evidence) string {
	if !e.Subject.HealthPorts {
		return ""
	}
	if ports, err := e.HealthPorts(); err != nil || len(ports) == 0 {
		return ""
	}
	return "answers of the health check NodePorts"
}
