package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/bench/subject"
)

const smallDisruption = `
name: small-disruption
shape:
  services: 50
  endpoints: {count: 3}
  protocols: {UDP: 0.4}
  types: {NodePort: 0.2}
  externalIPs: 0.2
proxy: {minSyncPeriod: 100ms, syncPeriod: 2s}
steps:
  - create: {}
  - settle:
  - traffic: {services: 20, longLived: 5, for: 1s}
  - churn: {rate: 10, events: 10}
  - churn: {rate: 10, events: 6, kind: services}
  - restart: {layout: classic}
  - settle:
  - traffic: {stop: true}
  - probe: {kind: traversal, method: flow, positions: 3, samples: 5}
`

// Flows that begin while rules change are all answered, by correct endpoints; connections survive.
func TestFlowsSurviveChanges(t *testing.T) {
	var subjects []string
	for _, name := range []string{"synclab/nftables", "synclab/iptables-legacy-tree"} {
		if subject, err := subject.Parse(name); err == nil && subject.Available() == nil {
			subjects = append(subjects, name)
		}
	}
	file := filepath.Join(t.TempDir(), "small-disruption.yaml")
	if err := os.WriteFile(file, []byte(smallDisruption), 0o600); err != nil {
		t.Fatal(err)
	}
	run, records := runScenario(t, "run", file, "--subjects", strings.Join(subjects, ","))
	if run.Feed != raw.FeedAPI {
		t.Errorf("feed %s", run.Feed)
	}
	for _, subject := range subjects {
		kinds, methods := map[string]int{}, map[string]int{}
		for _, r := range records {
			switch {
			case r.Subject != subject:
			case r.Metric == raw.Flow:
				kinds[r.Protocol+" "+r.Target]++
			case r.Metric == raw.FirstPacket:
				methods[r.Method]++
			}
			// Perhaps no flow was sent to a short-lived endpoint.
			if r.Subject == subject && r.Outcome != "" && r.Metric != raw.NewEndpointDelay {
				t.Errorf("%s: %+v", subject, r)
			}
		}
		for _, kind := range []string{"TCP ", "UDP ", "TCP node-port", "TCP external-ip"} {
			if kinds[kind] == 0 {
				t.Errorf("%s: no flow %s: %v", subject, kind, kinds)
			}
		}
		for _, method := range []string{"handshake", "echo", "established"} {
			if methods[method] < 3*5 {
				t.Errorf("%s: %d first packets of method %s", subject, methods[method], method)
			}
		}
		for _, metric := range []raw.Metric{raw.LongLivedFlow, raw.NewEndpointDelay} {
			if count(records, subject, metric) == 0 {
				t.Errorf("%s: no %s", subject, metric)
			}
		}
	}
}
