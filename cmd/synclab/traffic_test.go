package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// Without a move there is no verdict, and the command says so.
func TestMigrateWithoutMove(t *testing.T) {
	measures(t)
	status, _, stderr := invoke(t, "migrate", "--from", "synclab/iptables-legacy", "--to", "synclab/iptables-nft", "--services", "20", "--reps", "1", "--max-time", "1ms",
		"--out", filepath.Join(t.TempDir(), "run"))
	if status != exitFailed || !strings.Contains(stderr, "no move was measured") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// One kube-proxy replaces another under traffic, and is replaced again: each takes over, nothing is misrouted, and the
// report names what the modes do differently.
func TestMigrate(t *testing.T) {
	measures(t)
	needKubeProxy(t)
	run, records := runScenario(t, "migrate", "--from", "kube-proxy/iptables-nft", "--to", "kube-proxy/nftables", "--services", "20", "--reps", "1", patience)
	if len(run.Subjects) != 1 || run.Subjects[0] != "kube-proxy/iptables-nft" {
		t.Errorf("subjects %v", run.Subjects)
	}
	var moves, settled []string
	differs, synced := map[string]bool{}, map[string]bool{}
	left := map[string]bool{}
	for _, r := range records {
		switch r.Metric {
		case raw.Move:
			moves = append(moves, r.Kind)
		case raw.MoveSettled:
			settled = append(settled, r.Kind)
		case raw.FullSync:
			synced[r.Subject] = true
		case raw.BehaviourDiffers:
			differs[r.Table] = true
		case raw.LeftBehind:
			left[r.Table] = true
		case raw.Flow, raw.LongLivedFlow:
			if r.Outcome == "misrouted" {
				t.Errorf("%+v", r)
			}
		}
	}
	if want := []string{"kube-proxy/nftables", "kube-proxy/iptables-nft"}; !slices.Equal(moves, want) || !slices.Equal(settled, want) {
		t.Errorf("moves to %v, converged %v, want %v", moves, settled, want)
	}
	if !synced["kube-proxy/iptables-nft"] || !synced["kube-proxy/nftables"] {
		t.Errorf("records name the syncs of %v, want both subjects", synced)
	}
	// kube-proxy's mode nftables removes neither KUBE-FIREWALL, which is kubelet's as well, nor flows that continue.
	if !differs["nodeport-localhost"] || !left["chains of iptables-nft filter"] || left["chains of iptables-nft nat"] || !left["conntrack entries of TCP"] {
		t.Errorf("behaviours %v, left %v", differs, left)
	}
}

// Two backends of one proxier send real packets to the same places. A flushed table is found: nothing answers behind it.
func TestVerdictsByPackets(t *testing.T) {
	measures(t)
	const a, b = "synclab/nftables", "synclab/iptables-legacy"
	for _, name := range []string{a, b} {
		if s, err := subject.Parse(name); err != nil || s.Available() != nil {
			t.Skip(err, s.Available())
		}
	}
	ends := func(args ...string) map[string]map[string]string {
		_, records := runScenario(t, append([]string{"run", "verdicts", "--feed", "api", "--services", "20", "--set", "shape.families=[IPv4]"}, args...)...)
		ends := map[string]map[string]string{a: {}, b: {}}
		if name := records[0].Subject; count(records, name, raw.EndpointShare) == 0 {
			t.Errorf("%s: no shares of endpoints", name)
		}
		for _, r := range records {
			if r.Metric == raw.PacketVerdict {
				ends[r.Subject][strings.Join([]string{r.Service, r.Protocol, r.Target, r.Method}, " ")] = r.Outcome
				if r.Error != "" {
					t.Errorf("%s: %+v", r.Subject, r)
				}
			}
		}
		return ends
	}
	both := ends("--subjects", a+","+b)
	if len(both[a]) < 20*3*2 {
		t.Errorf("%d verdicts of 20 Services", len(both[a]))
	}
	if diff := cmp.Diff(both[a], both[b]); diff != "" {
		t.Errorf("(-%s +%s):\n%s", a, b, diff)
	}
	flushed := filepath.Join(t.TempDir(), "flushed.yaml")
	text, err := os.ReadFile("../../scenarios/library/verdicts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte("  - probe:"), []byte("  - fault: {kind: flush, table: nat}\n  - probe:"), 1)
	text, _, _ = bytes.Cut(text, []byte("  - check:")) // would wait for the repair
	text = append(text, "proxy: {syncPeriod: 1h}\n"...)
	if err := os.WriteFile(flushed, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, records := runScenario(t, "run", flushed, "--feed", "api", "--services", "20", "--set", "shape.families=[IPv4]", "--subjects", b)
	lost := 0
	for _, r := range records {
		key := strings.Join([]string{r.Service, r.Protocol, r.Target, r.Method}, " ")
		if r.Metric == raw.PacketVerdict && both[b][key] == "answered" && r.Outcome != "answered" {
			lost++
		}
	}
	if lost == 0 {
		t.Error("packets are answered as before though the table is flushed")
	}
}

// Flows are answered in every network of pods, and the trace has the devices of that network in the order of the way there
// and back.
func TestPodNetworks(t *testing.T) {
	measures(t)
	const subject = "synclab/nftables"
	out := filepath.Join(t.TempDir(), "run")
	status, stdout, stderr := invoke(t, "run", "pod-networks", "--trace", "--subjects", subject, "--services", "20", "--set", "steps.2.probe.samples=20", "--reps", "1", "--out", out)
	if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(stderr)
	}
	if status != exitDone {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	traces := strings.Split(stderr, "trace of one packet\n")[1:]
	if len(traces) != 3 {
		t.Fatalf("%d traces, want 3:\n%s", len(traces), stderr)
	}
	for i, want := range [][]string{ // by the values of shape.podNetwork, sorted or in order
		{"client pod: route", "becomes", "device pods0", "is local", "and back", "becomes", "device client0", "is local"},
		{"client pod: route", "becomes", "device pods0", "is local", "and back", "becomes", "device cni0", "is local"},
		{"client pod: route", "becomes", "device flannel.1", "VXLAN 1, UDP 169.254.2.1", "other node", "device pods0", "is local", "and back", "device flannel.1", "becomes", "device client0", "is local"},
	} {
		rest := traces[i]
		for _, word := range want {
			_, after, found := strings.Cut(rest, word)
			if !found {
				t.Errorf("trace %d has no %q after the words before it:\n%s", i, word, traces[i])
				break
			}
			rest = after
		}
	}
	if status, _, stderr := invoke(t, "run", "steady-churn", "--trace"); status != exitUsage || !strings.Contains(stderr, "pod-networks") {
		t.Errorf("--trace without a probe of flows: status %d, %s", status, stderr)
	}
}

// Flows that begin while rules change are all answered, by correct endpoints; connections survive.
func TestFlowsSurviveChanges(t *testing.T) {
	measures(t)
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
