package reports

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/plots"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
	"synclab/scenarios"
)

func TestShareAtMost(t *testing.T) {
	for _, test := range []struct {
		k, n int
		want float64
	}{{0, 0, 1}, {5, 5, 1}, {0, 300, 0.009936}, {1, 100, 0.046559}, {10, 1000, 0.016903}} {
		if got := estimate.ShareAtMost(test.k, test.n); math.Abs(got-test.want) > 2e-5 {
			t.Errorf("%d of %d: at most %v, want %v", test.k, test.n, got, test.want)
		}
	}
}

// TestDisruptedSteps: every flow counts once, in the step that did the work. The stream's own step is at rest.
func TestDisruptedSteps(t *testing.T) {
	flow := func(step string, ms float64, outcome string) raw.Record {
		return raw.Record{Rep: 1, Metric: raw.Flow, Value: ms / 1e3, Unit: "s", Step: step, Protocol: "TCP", Outcome: outcome}
	}
	held := func(protocol, outcome string) raw.Record {
		return raw.Record{Rep: 1, Metric: raw.LongLivedFlow, Value: 1e-3, Unit: "s", Step: "5:churn", Protocol: protocol, Outcome: outcome}
	}
	c := cellOf(raw.FeedAPI, flow("3:traffic", 1, ""), flow("4:settle", 2, ""), flow("5:churn", 5, ""), flow("5:churn", 9, "timeout"), flow("6:settle", 3, records.Misrouted),
		flow("6:settle", 4, "refused"), held("TCP", ""), held("TCP", "reset"), held("UDP", records.Misrouted), held("UDP", ""), held("UDP", "timeout"),
		raw.Record{Rep: 1, Metric: raw.RemovedEndpointServing, Value: 0.5, Unit: "s", Step: "6:settle"},
		raw.Record{Rep: 1, Metric: raw.NewEndpointDelay, Value: 0.25, Unit: "s", Step: "6:settle"},
		raw.Record{Rep: 1, Metric: raw.NewEndpointDelay, Value: 9, Unit: "s", Step: "6:settle", Outcome: "not yet"})
	steps := sections.DisruptedSteps(c)
	if len(steps) != 2 || !steps[0].Rest || steps[1].Rest {
		t.Fatalf("steps %+v", steps)
	}
	rest, churn := steps[0], steps[1]
	if rest.Flows != 2 || rest.Answered.N != 2 || rest.AddedP99 != nil {
		t.Errorf("rest %+v", rest)
	}
	if churn.Step != "5:churn" || churn.Flows != 4 || churn.Failed != 2 || churn.Misrouted != 1 || churn.Answered.N != 1 || churn.ByOutcome["timeout"] != 1 || churn.ByOutcome["refused"] != 1 {
		t.Errorf("churn %+v", churn)
	}
	if churn.LongLivedTCP != 2 || churn.LongLivedTCPBroken != 1 || churn.LongLivedUDP != 3 || churn.LongLivedUDPRemoved != 1 || churn.LongLivedUDPLost != 1 {
		t.Errorf("long-lived flows %+v", churn)
	}
	if churn.NewEndpointDelay.N != 1 || churn.NewEndpointDelay.Max != 0.25 || churn.AddedNotYet != 1 || churn.AddedNotYetFor != 9 {
		t.Errorf("new endpoints %+v, %d not yet after %v", churn.NewEndpointDelay, churn.AddedNotYet, churn.AddedNotYetFor)
	}
	if cell := churn.AddedCell(); !strings.Contains(cell.Sub, "1 not yet") || !strings.Contains(cell.Title, "9.00 s at most") {
		t.Errorf("cell of new endpoints %+v", cell)
	}
	if want := 0.005 - 0.00199; churn.AddedP99 == nil || math.Abs(*churn.AddedP99-want) > 1e-9 || churn.RemovedEndpointServing.Max != 0.5 {
		t.Errorf("added %v, want %v", *churn.AddedP99, want)
	}
}

// The report says when packets noticed changes: one row for each subject, with the moments counted from two origins.
func TestWhenPacketsNoticed(t *testing.T) {
	var all []raw.Record
	for rep := 1; rep <= 6; rep++ {
		for metric, value := range map[raw.Metric]float64{raw.Reachable: 0.6, raw.Unreachable: 0.59, raw.ReachableAfterVisible: 2e-3,
			raw.UnreachableAfterVisible: -4e-3, raw.NetworkProgrammingLatency: 0.598} {
			all = append(all, raw.Record{Subject: "kube-proxy/nftables", Services: 100, Rep: rep, Metric: metric, Value: value, Unit: "s", Step: "4:churn"})
		}
	}
	y := reportstest.StreamRun(reportstest.StreamModels[2:3], 5000, 1, 200, 6)
	y.Records = all
	dir := t.TempDir()
	s := buildOf(t, y, dir, Options{NoPNG: true})
	_, markdown := outputs(t, dir, s)
	if want := "| kube-proxy/nftables | 100 | 6 | 598 ms ± 0 % | 600 ms ± 0 % | 590 ms ± 0 % | 2.00 ms ± 0 s | 2.00 ms | -4.00 ms ± 0 s | -4.00 ms |"; !strings.Contains(markdown, want) {
		at := max(strings.Index(markdown, "noticed a change"), 0)
		t.Errorf("no line %q in\n%s", want, markdown[at:min(at+1200, len(markdown))])
	}
}

// Packets that end otherwise than with the first subject are in the report, and those that no behaviour explains are counted.
func TestVerdictDifferences(t *testing.T) {
	var all []raw.Record
	for _, subject := range []string{"kube-proxy/iptables-legacy", "kube-proxy/nftables", "kube-proxy/ipvs"} {
		for _, target := range []string{"cluster-ip", "external-ip", "other-port", "node-port"} {
			rec := raw.Record{Subject: subject, Services: 2, Endpoints: 1, Rep: 1, Metric: raw.PacketVerdict, Unit: "count", Value: 1, Step: "3:probe",
				Service: "ns/a:http", Family: "IPv4", Protocol: "TCP", Target: target, Method: "pod", Outcome: "answered"}
			if target != "cluster-ip" && subject == "kube-proxy/nftables" {
				rec.Outcome = "refused"
			}
			if target == "cluster-ip" && subject == "kube-proxy/nftables" {
				rec.Error = "answered by 10.0.0.1:80"
			}
			if target == "node-port" {
				if rec.Kind = "local-without-endpoint"; subject != "kube-proxy/ipvs" {
					rec.Outcome = "timeout"
				}
			}
			all = append(all, rec)
		}
		beyond := raw.Record{Subject: subject, Services: 2, Endpoints: 1, Rep: 1, Metric: raw.PacketVerdict, Unit: "count", Step: "3:probe", Service: "ns/a:http",
			Family: "IPv4", Protocol: "TCP", Target: "external-ip-other-port", Method: "outside", Outcome: "forwarded", Kind: "cluster-ip-on-node"}
		busy := beyond
		busy.Method, busy.Kind = "pod", ""
		switch subject {
		case "kube-proxy/ipvs":
			beyond.Outcome, busy.Outcome = "refused", raw.TooBusy
		case "kube-proxy/nftables":
			beyond.Outcome, beyond.Error = "looped", "looped: it passed the node 3 times, and its TTL fell from 64 to 61"
		}
		all = append(all, beyond, busy)
	}
	all = append(all, raw.Record{Subject: "synclab/iptables-nft", Services: 2, Endpoints: 1, Rep: 1, Metric: raw.ColdStart, Value: 1, Unit: "s"}) // and no packets
	y := reportstest.StreamRun(reportstest.StreamModels[2:3], 2, 1, 200, 1)
	y.Records = all
	dir := t.TempDir()
	_, markdown := outputs(t, dir, buildOf(t, y, dir, Options{NoPNG: true}))
	for _, want := range []string{
		"compared with kube-proxy/iptables-legacy: 2 differences that nothing explains",
		"| kube-proxy/nftables | external-ip | pod | 1 | answered | refused | nothing | ns/a:http TCP IPv4 |",
		"| kube-proxy/nftables | other-port | pod | 1 | answered | refused | cluster-ip-other-ports | ns/a:http TCP IPv4 |",
		"| kube-proxy/ipvs | node-port | pod | 1 | timeout | answered | local-without-endpoint | ns/a:http TCP IPv4 |",
		"| kube-proxy/nftables | all | all | 1 | – | wrong endpoint | nothing | – |",
		"| kube-proxy/nftables | all | all | 1 | – | looped | nothing | – |",
		"| kube-proxy/ipvs | external-ip-other-port | outside | 1 | forwarded | refused | cluster-ip-on-node | ns/a:http TCP IPv4 |",
		"1 packet to ports that no Service has looped",
		"Not compared: 1 packet not observed; no packets of synclab/iptables-nft to compare.",
		"no documented difference explains it. 1 packet not observed; no packets of synclab/iptables-nft to compare.",
	} {
		if !strings.Contains(markdown, want) {
			t.Errorf("no %q in\n%s", want, markdown)
		}
	}
}

func TestDisruptionOutputs(t *testing.T) {
	dir := t.TempDir()
	s := buildOf(t, reportstest.StreamRun(reportstest.StreamModels[:4], 5000, 1, 200, 6), dir, Options{NoPNG: true})
	terminal, markdown := outputs(t, dir, s)
	page := readPage(t, dir)
	for name, text := range map[string]string{"page": page, "terminal": terminal, "summary.md": markdown} {
		if !strings.Contains(text, "misrouted") && !strings.Contains(text, "Misrouted") {
			t.Errorf("%s does not mention misrouted flows", name)
		}
	}
	for i, d := range s.Disruptions {
		total := d.During()
		if clean := reportstest.StreamModels[i].Failing == 0; clean != (total.Failed+total.Misrouted == 0) || d.Rest() == nil || total.Flows != 7*1200 && total.Flows != 6*1200 && total.Flows != 8*1200 {
			t.Errorf("%s: %+v", d.Series, total)
		}
		if total.AddedP99 == nil || *total.AddedP99 <= 0 {
			t.Errorf("%s: a sync that delays flows adds no latency: %v", d.Series, total.AddedP99)
		}
	}
	if svg := string(plotNamed(t, s, "flows-synclab-iptables-legacy").Markup); !strings.Contains(svg, "9 restart") || strings.Contains(svg, "misrouted:") {
		t.Error("the timeline lacks its steps, or has outcomes that did not happen")
	}
}

// TestUnwatchedFlows: flows that were not observed are counted separately, and in no other number.
func TestUnwatchedFlows(t *testing.T) {
	run := &records.Run{Info: raw.Run{ID: "x", Feed: raw.FeedAPI}}
	for _, r := range []raw.Record{{Metric: raw.Flow, Step: "3:traffic"}, {Metric: raw.Flow, Step: "4:churn"},
		{Metric: raw.FlowsUnobserved, Value: 6, Step: "5:traffic"}, {Metric: raw.ControlFailure, Value: 0.9, Outcome: "timeout", Step: "5:traffic"}} {
		r.Subject, r.Services, r.Rep, r.Protocol = "a/b", 10, 1, "TCP"
		run.Records = append(run.Records, r)
	}
	c := records.Collect([]*records.Run{run})
	s := &sections.Summary{Disruptions: sections.Disruptions(c), Collected: c}
	if d := s.Disruptions[0]; d.Unwatched != 7 || d.During().Flows != 1 {
		t.Errorf("%+v", d)
	}
	table := s.DisruptionTotals(c.Cells[0])
	last := len(table.Columns) - 1
	if table.Columns[last].Name != "Unobserved" || table.Rows[0][last].Text != "7" || !table.Rows[0][last].Loud {
		t.Errorf("columns %+v, row %+v", table.Columns, table.Rows[0])
	}
}

// A stream of which nothing was observed, as behind a proxy that drops every forwarded packet, is no good result.
func TestNoFlowObserved(t *testing.T) {
	y := reportstest.StreamRun(reportstest.StreamModels[2:3], 2, 1, 200, 1)
	for i := range y.Records {
		if r := &y.Records[i]; r.Metric == raw.Flow {
			r.Metric, r.Outcome = raw.ControlFailure, "timeout"
		}
	}
	y.Records = slices.DeleteFunc(y.Records, func(r raw.Record) bool { return r.Metric == raw.LongLivedFlow })
	dir := t.TempDir()
	_, markdown := outputs(t, dir, buildOf(t, y, dir, Options{NoPNG: true}))
	if !strings.Contains(markdown, "Flows that were not observed") || strings.Contains(markdown, "No new flow failed") || strings.Contains(markdown, "none of") {
		t.Error(markdown)
	}
}

// With 100,000 flows, the plot's file stays small, and every failed flow is drawn.
func TestManyFlows(t *testing.T) {
	dir := t.TempDir()
	s := buildOf(t, reportstest.StreamRun(reportstest.StreamModels[:1], 5000, 1, 1250, 9), dir, Options{})
	d := s.Disruptions[0].During()
	if rest := s.Disruptions[0].Rest(); d.Flows+rest.Flows < 100_000 {
		t.Fatalf("%d flows", d.Flows+rest.Flows)
	}
	for _, file := range []string{"flows-kube-proxy-iptables-legacy.svg", "flows-kube-proxy-iptables-legacy.png"} {
		stat, err := os.Stat(filepath.Join(dir, file))
		if err != nil || stat.Size() > 600_000 {
			t.Errorf("%s: %v, %v", file, stat, err)
		}
	}
	if svg := string(plotNamed(t, s, "flows-kube-proxy-iptables-legacy").Markup); !strings.Contains(svg, "misrouted: "+doc.Grouped(int64(d.Misrouted))) {
		t.Errorf("the legend does not count %d misrouted flows", d.Misrouted)
	}
	flows, _, _ := plots.FirstStream(s.Collected.Series[0].Cells[s.Collected.Cells[0].ID()])
	drawn := 0
	for _, look := range plots.OutcomeLooks[1:] {
		drawn += len(plots.DotsOf(flows, look))
	}
	if drawn != d.Failed+d.Misrouted {
		t.Errorf("%d dots for %d failed flows", drawn, d.Failed+d.Misrouted)
	}
}

func TestDisruptionGolden(t *testing.T) {
	s := buildOf(t, reportstest.StreamRun(reportstest.StreamModels, 5000, 2, 100, 6), t.TempDir(), Options{NoPNG: true})
	golden(t, "disruption.golden", []byte(terminalOf(t, s.DisruptionSection())))
}

// terminalOf is what a terminal shows of sections.
func terminalOf(t *testing.T, sections ...doc.Section) string {
	t.Helper()
	var b strings.Builder
	d := doc.Document{Sections: sections}
	if err := d.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// An unknown outcome counts as a failure, and is drawn.
func TestOtherOutcome(t *testing.T) {
	y := reportstest.Recorded{Scenario: scenarios.Scenario{Name: "x"}, Reps: 1}
	for i, outcome := range []string{"", "", "unreachable"} {
		y.Records = append(y.Records, raw.Record{Subject: "a/b", Services: 10, Rep: 1, At: float64(i) + 1, Metric: raw.Flow, Value: 1e-3, Unit: "s", Step: "2:traffic", Outcome: outcome})
	}
	s := buildOf(t, y, t.TempDir(), Options{NoPNG: true})
	if step := s.Disruptions[0].Steps[0]; step.Failed != 1 || !strings.Contains(string(plotNamed(t, s, "flows-a-b").Markup), "other: 1") {
		t.Errorf("%+v", step)
	}
}
