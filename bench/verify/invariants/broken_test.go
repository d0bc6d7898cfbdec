package invariants

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables/rule"
	"synclab/proxier/nftables"
)

// broken is a mutation that a checker must find.
type broken struct {
	what, invariant, subject string
	change                   func(*testing.T, *Evidence)
}

func mutations() []broken {
	return []broken{
		{"a rule is lost", "I1", "classic", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-d 10.96.0.10/32") }},
		{"a jump is lost", "I1", "classic", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-A OUTPUT -m comment") }},
		{"a jump is twice", "I1", "classic", func(_ *testing.T, e *Evidence) {
			c := e.Saved[ipv4]["filter"]["FORWARD"]
			c.Rules = append(c.Rules, c.Rules[0])
		}},
		{"rules change places", "I1", "classic", func(_ *testing.T, e *Evidence) {
			c := e.Saved[ipv4]["nat"]["KUBE-POSTROUTING"]
			c.Rules[0], c.Rules[1] = c.Rules[1], c.Rules[0]
		}},
		{"a chain is lost", "I1", "tree", func(_ *testing.T, e *Evidence) { delete(e.Saved[ipv4]["mangle"], "KUBE-PROXY-CANARY") }},
		{"a rule of kube-proxy's is lost", "I1", "kube-proxy", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-d 10.96.0.10/32") }},
		{"an element is lost", "I1", "nftables", func(_ *testing.T, e *Evidence) { take(e.Nft[ipv4].Sets["frontends"]) }},
		{"an unexpected element", "I1", "nftables", func(_ *testing.T, e *Evidence) { e.Nft[ipv4].Sets["health-checks"]["abc"] = "" }},
		{"an endpoint is another", "I1", "nftables", func(_ *testing.T, e *Evidence) { spoil(e.Nft[ipv4].Sets[endpointSets[0]]) }},
		{"a frontend is another Service's", "I1", "nftables", func(_ *testing.T, e *Evidence) { spoil(e.Nft[ipv4].Sets[listsSet]) }},
		{"a class is another", "I1", "nftables", func(_ *testing.T, e *Evidence) { spoil(e.Nft[ipv4].Sets["frontends"]) }},
		{"a hairpin is lost", "I1", "nftables", func(_ *testing.T, e *Evidence) { take(e.Nft[ipv4].Sets[hairpinSet]) }},
		{"a base chain is empty", "I1", "nftables", func(_ *testing.T, e *Evidence) { e.Nft[ipv4].Rules["nat-output"] = 0 }},
		{"two tables", "I1", "nftables", func(_ *testing.T, e *Evidence) { e.Nft[ipv4].Beside = []string{"synclab-2"} }},
		{"no table", "I1", "nftables", func(_ *testing.T, e *Evidence) { e.Nft[ipv4].Name = "" }},

		{"a Service leads nowhere", "I2", "classic", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-d 10.96.0.10/32"); e.recompile(t) }},
		{"an endpoint is never reached", "I2", "tree", func(t *testing.T, e *Evidence) {
			e.replace(t, "nat", "10.128.0.2:8080", "10.128.0.1:8080")
			e.recompile(t)
		}},
		{"a Service is rejected", "I2", "kube-proxy", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-d 10.96.0.11/32"); e.recompile(t) }},
		{"a map leads nowhere", "I2", "nftables", func(t *testing.T, e *Evidence) {
			e.nftRules(t, func(m *nftables.Model) { clear(m.Sets["frontends"].Elements) })
		}},
		{"flows of the stream fail", "I2", "classic", func(_ *testing.T, e *Evidence) { e.Traffic.Failed = 1 }},

		{"flows of the stream are unknown", "I2", "nftables", func(_ *testing.T, e *Evidence) { e.Traffic = &Traffic{Streaming: true} }},

		{"an endpoint is another Service's", "I3", "classic", func(t *testing.T, e *Evidence) {
			e.replace(t, "nat", "10.128.0.2:8080", "10.128.0.4:8080")
			e.recompile(t)
		}},
		{"an unknown endpoint", "I3", "kube-proxy", func(t *testing.T, e *Evidence) {
			e.replace(t, "nat", "10.128.0.2:8080", "10.128.0.99:8080")
			e.recompile(t)
		}},
		{"an element with an unknown endpoint", "I3", "nftables", func(t *testing.T, e *Evidence) {
			e.nftRules(t, func(m *nftables.Model) {
				for key, el := range m.Sets[endpointSets[0]].Elements {
					el.Value = slices.Clone(el.Value)
					el.Value[3] ^= 0x40
					m.Sets[endpointSets[0]].Elements[key] = el
				}
			})
		}},
		{"flows of the stream go astray", "I3", "nftables", func(_ *testing.T, e *Evidence) { e.Traffic.Misrouted = 1 }},

		{"no REJECT", "I4", "classic", func(t *testing.T, e *Evidence) { e.drop(t, "filter", "-d 10.96.0.12/32"); e.recompile(t) }},
		{"no DROP", "I4", "tree", func(t *testing.T, e *Evidence) { e.drop(t, "filter", "-d 10.96.0.13/32"); e.recompile(t) }},
		{"no answer", "I4", "nftables", func(_ *testing.T, e *Evidence) { e.Refused[0].Err = unix.ETIMEDOUT }},
		{"a late answer", "I4", "nftables", func(_ *testing.T, e *Evidence) { e.Refused[0].Waited = 2 * time.Second }},

		{"a table is a mixture", "I5", "classic", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-d 10.96.0.10/32") }},
		{"a table is neither", "I5", "classic", func(t *testing.T, e *Evidence) { e.Restores = []FailedRestore{half(t, e)} }},
		{"a table is neither", "I5", "kube-proxy", func(t *testing.T, e *Evidence) { e.Restores = []FailedRestore{half(t, e)} }},
		{"a table is gone", "I5", "kube-proxy", func(t *testing.T, e *Evidence) {
			now := e.Saved[ipv4]
			e.Restores = []FailedRestore{{Family: ipv4, Before: now, Intended: now, After: Saved{"filter": now["filter"]}}}
		}},

		{"it never settles", "I6", "classic", func(_ *testing.T, e *Evidence) { e.Settled = errors.New("1 of 2 Service ports") }},

		{"a foreign rule is lost", "I7", "classic", func(t *testing.T, e *Evidence) { e.drop(t, "filter", "foreign first in INPUT") }},
		{"a foreign chain is lost", "I7", "tree", func(_ *testing.T, e *Evidence) { delete(e.Saved[ipv4]["nat"], foreignChain) }},
		{"counters are reset", "I7", "kube-proxy", func(_ *testing.T, e *Evidence) { e.Saved[ipv4]["mangle"][foreignChain].Rules[1].Counters[0] = 0 }},
		{"foreign rules change places", "I7", "classic", func(_ *testing.T, e *Evidence) { slices.Reverse(e.Saved[ipv4]["nat"]["OUTPUT"].Rules) }},
		{"a policy is another", "I7", "classic", func(_ *testing.T, e *Evidence) { e.Saved[ipv4]["filter"]["FORWARD"].Policy = "DROP" }},
		{"a foreign table of nf_tables is lost", "I7", "nftables", func(_ *testing.T, e *Evidence) { clear(e.ForeignNft) }},

		{"an unexpected chain", "I8", "classic", func(t *testing.T, e *Evidence) {
			e.Saved[ipv4]["nat"]["KUBE-SEP-AAAAAAAAAAAAAAAA"] = &rule.Chain{Policy: "-", Rules: []rule.Rule{parsed(t, "-A KUBE-SEP-AAAAAAAAAAAAAAAA -j RETURN")}}
		}},
		{"an unexpected empty chain", "I8", "kube-proxy", func(_ *testing.T, e *Evidence) {
			e.Saved[ipv4]["nat"]["KUBE-SVC-AAAAAAAAAAAAAAAA"] = &rule.Chain{Policy: "-"}
		}},
		{"nothing leads to a chain", "I8", "tree", func(t *testing.T, e *Evidence) { e.drop(t, "nat", "-A POSTROUTING -m comment") }},
		{"what is left over stays", "I8", "nftables", func(t *testing.T, e *Evidence) {
			e.Nft[ipv4].Sets[endpointSets[0]][strings.Repeat("x", idLen)+"\x00\x00\x00\x00"] = "10.0.0.1:80"
			left, err := e.Left(t.Context())
			if err != nil || len(left.Keys) != 1 {
				t.Fatalf("left over: %+v, %v", left, err)
			}
			e.LeftBefore = left
			e.Syncs += leftoverSyncs
		}},

		{"a flow stays with an endpoint that is gone", "I9", "classic", func(_ *testing.T, e *Evidence) {
			e.Flows[ipv4] = append(e.Flows[ipv4], flow("10.128.0.9:5003", "10.96.0.11:80", "10.128.0.77:8080"))
		}},
		{"a flow to a Service without endpoints stays", "I9", "nftables", func(_ *testing.T, e *Evidence) {
			e.Flows[ipv4] = append(e.Flows[ipv4], flow("10.128.0.9:5003", "10.96.0.12:80", "10.128.0.77:8080"))
		}},
		{"a flow to a NodePort stays", "I9", "classic", func(_ *testing.T, e *Evidence) {
			e.Flows[ipv4] = append(e.Flows[ipv4], flow("10.128.0.9:5003", "192.0.2.10:30053", "10.128.0.77:8080"))
		}},
		{"a flow to a Service that is gone stays", "I9", "classic", func(_ *testing.T, e *Evidence) {
			e.Flows[ipv4] = append(e.Flows[ipv4], flow("10.128.0.9:5003", "10.96.0.99:80", "10.128.0.77:8080"))
		}},
		{"another's flow is cut", "I9", "kube-proxy", func(_ *testing.T, e *Evidence) { e.Flows[ipv4] = e.Flows[ipv4][1:] }},
		{"long-lived flows end", "I9", "classic", func(_ *testing.T, e *Evidence) { e.Traffic.LongLivedLost = 1 }},

		{"shares differ", "I10", "classic", func(t *testing.T, e *Evidence) {
			e.replace(t, "nat", "--probability 0.5", "--probability 0.6")
			e.recompile(t)
		}},
		{"an endpoint gets two shares", "I10", "classic", func(t *testing.T, e *Evidence) {
			e.replace(t, "nat", "10.128.0.2:8080", "10.128.0.1:8080")
			e.recompile(t)
		}},
		{"probabilities fall", "I10", "kube-proxy", func(_ *testing.T, e *Evidence) {
			for _, c := range e.Saved[ipv4]["nat"] {
				slices.Reverse(c.Rules)
			}
		}},
		{"real flows are shared unevenly", "I10", "nftables", func(_ *testing.T, e *Evidence) {
			for to := range e.Traffic.Reached["ns/web:p"] {
				e.Traffic.Reached["ns/web:p"][to] = 900
				break
			}
		}},

		{"in sync and unhealthy", "I11", "classic", func(_ *testing.T, e *Evidence) { e.Health = http.StatusServiceUnavailable }},
		{"not in sync for long, and healthy", "I11", "classic", func(_ *testing.T, e *Evidence) { e.Missing = 3 * time.Second }},

		{"a gauge is wrong", "I12", "classic", func(_ *testing.T, e *Evidence) { e.gauge(rulesTotal, 1, "table", "nat", "ip_family", string(ipv4)) }},
		{"failures are not counted", "I12", "tree", func(_ *testing.T, e *Evidence) { e.Injected[ipv4] = 3 }},
		{"a gauge is not served", "I12", "classic", func(_ *testing.T, e *Evidence) { delete(e.Metrics, rulesTotal) }},
		{"pending changes are not served", "I12", "kube-proxy", func(_ *testing.T, e *Evidence) { delete(e.Metrics, servicesPending) }},
		{"changes are pending", "I12", "nftables", func(_ *testing.T, e *Evidence) { e.gauge(slicesPending, 1) }},

		{"a restart loses a chain", "I13", "classic", func(_ *testing.T, e *Evidence) { delete(e.Saved[ipv4]["filter"], "KUBE-FORWARD") }},
		{"a restart of kube-proxy leaves a chain", "I13", "kube-proxy", func(_ *testing.T, e *Evidence) {
			e.Saved[ipv4]["nat"]["KUBE-SVC-AAAAAAAAAAAAAAAA"] = &rule.Chain{Policy: "-"}
		}},
		{"a restart loses an element", "I13", "nftables", func(_ *testing.T, e *Evidence) { take(e.Nft[ipv4].Sets["nodeports"]) }},
		{"a restart cuts a flow", "I13", "classic", func(_ *testing.T, e *Evidence) {
			e.Flows[ipv4] = slices.Delete(e.Flows[ipv4], 1, 2)
		}},

		{"a health check does not answer", "I14", "kube-proxy", func(_ *testing.T, e *Evidence) { e.HealthAnswers[0] = HealthAnswer{Err: unix.ECONNREFUSED} }},
		{"a health check answers for another Service", "I14", "classic", func(_ *testing.T, e *Evidence) { e.healthBody(`"edge"`, `"web"`) }},
		{"a terminating endpoint counts", "I14", "nftables", func(_ *testing.T, e *Evidence) { e.healthBody(`: 2`, `: 3`) }},
		{"a health check lacks its count", "I14", "classic", func(_ *testing.T, e *Evidence) { e.healthBody(`"localEndpoints": 2,`, ``) }},
		{"the header has another count", "I14", "classic", func(_ *testing.T, e *Evidence) { e.HealthAnswers[0].Header.Set(weightHeader, "1") }},
		{"the header is missing", "I14", "tree", func(_ *testing.T, e *Evidence) { e.HealthAnswers[0].Header.Del(weightHeader) }},
		{"ready endpoints and 503", "I14", "classic", func(_ *testing.T, e *Evidence) { e.HealthAnswers[0].Status = http.StatusServiceUnavailable }},
		{"no ready endpoint and 200", "I14", "kube-proxy", func(_ *testing.T, e *Evidence) {
			e.HealthAnswers[0].Ready = 0
			e.healthBody(`: 2`, `: 0`)
			e.HealthAnswers[0].Header.Set(weightHeader, "0")
		}},
		{"unhealthy and 200", "I14", "classic", func(_ *testing.T, e *Evidence) {
			e.healthBody("true", "false")
			e.Health = http.StatusServiceUnavailable
		}},
		{"only the health check is unhealthy", "I14", "classic", func(_ *testing.T, e *Evidence) {
			e.healthBody("true", "false")
			e.HealthAnswers[0].Status = http.StatusServiceUnavailable
		}},
		{"a health check lacks the proxy's health", "I14", "classic", func(_ *testing.T, e *Evidence) { e.healthBody(`, "serviceProxyHealthy": true`, ``) }},
		{"no JSON", "I14", "classic", func(_ *testing.T, e *Evidence) { e.HealthAnswers[0].Body = []byte("ok") }},
	}
}

// Each checker finds its mutations, and each invariant has at least one mutation.
func TestBrokenEvidence(t *testing.T) {
	tried := map[string]int{}
	for _, broken := range mutations() {
		tried[broken.invariant]++
		t.Run(broken.invariant+" "+broken.subject+" "+broken.what, func(t *testing.T) {
			e := good(t, subjects[broken.subject])
			broken.change(t, e)
			found := findings(t, e, broken.invariant)
			if len(found[broken.invariant]) == 0 {
				t.Error("the checker did not find the mutation")
			}
			for _, f := range found[broken.invariant] {
				t.Logf("%s %s", f.Service, f.Text)
			}
		})
	}
	for _, invariant := range All() {
		if tried[invariant.Name] == 0 {
			t.Errorf("no mutation breaks %s", invariant.Name)
		}
	}
}

// If required evidence is missing, each invariant reports that no evidence was checked.
func TestMissingEvidence(t *testing.T) {
	blind := map[string]func(*Evidence){
		"I1":  func(e *Evidence) { e.Saved = nil },
		"I2":  func(e *Evidence) { e.Rules, e.Traffic = nil, nil },
		"I3":  func(e *Evidence) { e.Rules, e.Traffic = nil, nil },
		"I4":  func(e *Evidence) { e.Rules = nil },
		"I5":  func(e *Evidence) { e.Saved = nil },
		"I6":  nil, // it needs no evidence that could be missing
		"I7":  func(e *Evidence) { e.Planted = nil },
		"I8":  func(e *Evidence) { e.Saved = nil },
		"I9":  func(e *Evidence) { e.Flows, e.Traffic = nil, nil },
		"I10": func(e *Evidence) { e.Rules, e.Traffic = nil, nil },
		"I11": func(e *Evidence) { e.Health = 0 },
		"I12": func(e *Evidence) { e.Metrics = nil },
		"I13": func(e *Evidence) { e.Flows, e.Saved = nil, nil },
		"I14": func(e *Evidence) { e.HealthAnswers = nil },
	}
	for _, invariant := range All() {
		take, known := blind[invariant.Name]
		if !known {
			t.Errorf("%s: the test does not know how to remove its evidence", invariant.Name)
		}
		if take == nil {
			continue
		}
		t.Run(invariant.Name, func(t *testing.T) {
			e := good(t, subjects["classic"])
			take(e)
			if found := findings(t, e, invariant.Name)[invariant.Name]; len(found) != 1 || !strings.Contains(found[0].Text, "no evidence was checked") {
				t.Errorf("found %+v", found)
			}
		})
	}
}

// An unknown subject requires no evidence, but the flows of a stream count.
func TestUnknownSubject(t *testing.T) {
	e := good(t, subjects["classic"])
	e.Subject, e.Saved, e.Rules, e.Health, e.Metrics, e.Restarted = known("exec:any=/bin/any"), nil, nil, 0, nil, nil
	e.HealthAnswers[0] = HealthAnswer{Err: unix.ECONNREFUSED}
	e.Planted.Rules, e.Refused = nil, nil
	if found := findings(t, e); len(found) > 0 {
		t.Errorf("found %+v", found)
	}
	e.Traffic.Failed, e.Traffic.Misrouted = 1, 1
	found := findings(t, e)
	if len(found["I2"]) == 0 || len(found["I3"]) == 0 {
		t.Errorf("found %+v", found)
	}
}

// healthBody changes the body of the health check's answer.
func (e *Evidence) healthBody(old, by string) {
	e.HealthAnswers[0].Body = bytes.Replace(e.HealthAnswers[0].Body, []byte(old), []byte(by), 1)
}

// half is a failed restore into an empty table that left all rules except one.
func half(t *testing.T, e *Evidence) FailedRestore {
	intended := e.Saved[ipv4].Clone()
	left := &Evidence{Saved: map[corev1.IPFamily]Saved{ipv4: intended.Clone()}}
	left.drop(t, "nat", "-d 10.96.0.10/32")
	return FailedRestore{Family: ipv4, Before: Saved{"nat": {}}, Intended: intended, After: Saved{"nat": left.Saved[ipv4]["nat"]}}
}

// take deletes an element.
func take(elements map[string]string) {
	delete(elements, slices.Min(slices.Collect(maps.Keys(elements))))
}

// spoil changes the value of an element.
func spoil(elements map[string]string) {
	key := slices.Min(slices.Collect(maps.Keys(elements)))
	value := []byte(elements[key])
	value[len(value)/2] ^= 0x55
	elements[key] = string(value)
}

// Evidence that is no violation.
func TestToleratedEvidence(t *testing.T) {
	for _, tolerated := range []struct {
		what, invariant, subject string
		change                   func(*testing.T, *Evidence)
	}{
		{"a chain that a foreign rule holds stays empty", "I8", "classic", func(t *testing.T, e *Evidence) {
			e.Saved[ipv4]["nat"]["KUBE-SVC-AAAAAAAAAAAAAAAA"] = &rule.Chain{Policy: "-"}
			c := e.Saved[ipv4]["nat"][foreignChain]
			c.Rules = append(c.Rules, parsed(t, "-A "+foreignChain+" -j KUBE-SVC-AAAAAAAAAAAAAAAA"))
		}},
		{"the kubelet has chains too", "I8", "classic", func(_ *testing.T, e *Evidence) {
			e.Saved[ipv4]["nat"]["KUBE-KUBELET-CANARY"] = &rule.Chain{Policy: "-"}
		}},
		{"the kubelet has a rule in KUBE-FIREWALL", "I1", "classic", func(t *testing.T, e *Evidence) {
			c := e.Saved[ipv4]["filter"]["KUBE-FIREWALL"]
			c.Rules = append([]rule.Rule{parsed(t, "-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP")}, c.Rules...)
		}},
		{"a failed restore left a table as it was", "I5", "classic", func(t *testing.T, e *Evidence) {
			intended := e.Saved[ipv4].Clone()
			e.drop(t, "nat", "-d 10.96.0.10/32")
			e.Restores = []FailedRestore{{Family: ipv4, Before: e.Saved[ipv4], Intended: intended, After: e.Saved[ipv4]}}
			e.Saved = map[corev1.IPFamily]Saved{ipv4: intended}
		}},
		{"a failed restore wrote one table, and not the next", "I5", "kube-proxy", func(t *testing.T, e *Evidence) {
			before := e.Saved[ipv4].Clone()
			after := Saved{"filter": {}, "nat": before["nat"]}
			e.Restores = []FailedRestore{{Family: ipv4, Before: before, Intended: Saved{"filter": {}, "nat": {}}, After: after}}
		}},
		{"the intent of a failed restore is unknown", "I5", "kube-proxy", func(t *testing.T, e *Evidence) {
			before := e.Saved[ipv4].Clone()
			e.drop(t, "nat", "-d 10.96.0.10/32")
			e.Restores = []FailedRestore{{Family: ipv4, Before: before, After: e.Saved[ipv4]}}
		}},
		{"what is left over of one sync", "I8", "nftables", func(_ *testing.T, e *Evidence) {
			e.Nft[ipv4].Sets[endpointSets[0]][strings.Repeat("x", idLen)+"\x00\x00\x00\x00"] = "10.0.0.1:80"
		}},
		{"slots beyond the end", "I1", "nftables", func(_ *testing.T, e *Evidence) {
			for key, value := range maps.Clone(e.Nft[ipv4].Sets[endpointSets[0]]) {
				e.Nft[ipv4].Sets[endpointSets[0]][key[:idLen]+"\x63\x00\x00\x00"] = value
			}
		}},
		{"objects changed since the restart", "I13", "classic", func(_ *testing.T, e *Evidence) {
			e.Restarted.Objects++
			delete(e.Saved[ipv4]["filter"], "KUBE-FORWARD")
		}},
		{"an old kube-proxy answers without the header", "I14", "kube-proxy", func(_ *testing.T, e *Evidence) {
			e.Subject.OldHealthPorts = true
			e.HealthAnswers[0].Header.Del(weightHeader)
			e.healthBody(`, "serviceProxyHealthy": true`, ``)
		}},
		{"unhealthy, as /healthz says", "I14", "kube-proxy", func(_ *testing.T, e *Evidence) {
			e.Health, e.HealthAnswers[0].Status = http.StatusServiceUnavailable, http.StatusServiceUnavailable
			e.healthBody("true", "false")
		}},
		{"something has been missing for a moment", "I11", "classic", func(_ *testing.T, e *Evidence) { e.Missing = time.Second }},
		{"comments of a large cluster", "I1", "kube-proxy", func(_ *testing.T, e *Evidence) {
			for name, c := range e.Saved[ipv4]["nat"] {
				for i := range c.Rules {
					if strings.HasPrefix(name, "KUBE-SEP-") {
						c.Rules[i] = *c.Rules[i].WithoutComments()
					}
				}
			}
		}},
	} {
		t.Run(tolerated.invariant+" "+tolerated.what, func(t *testing.T) {
			e := good(t, subjects[tolerated.subject])
			tolerated.change(t, e)
			if found := findings(t, e, tolerated.invariant); len(found) > 0 {
				t.Errorf("found %+v", found)
			}
		})
	}
}
