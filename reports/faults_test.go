package reports

import (
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/records"
	"synclab/reports/reportstest"
	"synclab/reports/sections"
)

// TestFaultWindow: all flows that begin between a fault and the recovery count. One that began before may have met another fault.
func TestFaultWindow(t *testing.T) {
	flow := func(due, took float64, outcome string) raw.Record {
		return raw.Record{Rep: 1, At: due, Metric: raw.Flow, Value: took, Unit: "s", Outcome: outcome}
	}
	of := func(metric raw.Metric, at, value float64, text string) raw.Record {
		return raw.Record{Rep: 1, At: at, Metric: metric, Value: value, Unit: "s", Fault: "5:fault flush nat", Error: text}
	}
	c := cellOf(raw.FeedAPI, of(raw.FaultDuration, 10, 0, ""), of(raw.FaultDetected, 11, 1, ""), of(raw.FaultRepaired, 13, 3, ""),
		flow(8, 1, "timeout"), flow(9.5, 1, "timeout"), flow(10.5, 1, "timeout"), flow(12, 0.1, records.Misrouted), flow(12.9, 0.5, ""), flow(13.1, 1, "refused"))
	f := sections.ResultOfFault(c, "5:fault flush nat")
	if f.Flows != 3 || f.Failed != 1 || f.Misrouted != 1 || f.Recovered.Median != 3 || f.Detected.Median != 1 || f.Never != 0 {
		t.Errorf("%+v", f)
	}
	never := cellOf(raw.FeedAPI, of(raw.FaultDuration, 10, 6, ""), of(raw.FaultRepaired, 55, 45, "not repaired within 45s"), flow(54, 1, "timeout"), flow(56, 1, "timeout"))
	f = sections.ResultOfFault(never, "5:fault flush nat")
	if f.Never != 1 || f.Recovered != nil || f.Failed != 1 || f.Duration != 6 || sections.FaultCell(&f).Text != "not within 45 s" || !sections.FaultCell(&f).Loud {
		t.Errorf("%+v: %+v", f, sections.FaultCell(&f))
	}
	open := cellOf(raw.FeedAPI, of(raw.FaultDuration, 10, 0, ""), flow(11, 1, "timeout"),
		raw.Record{Rep: 1, At: 20, Metric: raw.FaultDuration, Unit: "s", Fault: "7:fault killed"}, flow(21, 1, "timeout"))
	if f = sections.ResultOfFault(open, "5:fault flush nat"); f.Failed != 1 || sections.FaultCell(&f).Text != "unknown" {
		t.Errorf("a fault without a repair record ends when the next fault starts: %+v", f)
	}
}

func TestFaultText(t *testing.T) {
	for name, want := range map[string]string{"5:fault flush nat": "5 flush nat", "12:fault delete jump nat": "12 delete jump nat", "flush": "flush", "5:killed": "5 killed"} {
		if got := sections.NumberedFault(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A fault's name has its step only if another fault has the same name.
func TestFaultName(t *testing.T) {
	among := []string{"5:fault flush nat", "7:fault lock-held", "9:fault lock-held", "killed"}
	for i, want := range []string{"flush nat", "lock-held (step 7)", "lock-held (step 9)", "killed"} {
		if got := sections.FaultName(among[i], among); got != want {
			t.Errorf("%q: %q, want %q", among[i], got, want)
		}
	}
}

func TestHoldText(t *testing.T) {
	for seconds, want := range map[float64]string{6: "for 6 s", 10: "for 10 s", 0.5: "for 500 ms", 3600: "until cleared", 660: "for 11m", 661: "for 11m1s"} {
		if got := sections.HoldText(seconds); got != want {
			t.Errorf("%v: %q, want %q", seconds, got, want)
		}
	}
}

func TestFaultOutputs(t *testing.T) {
	dir := t.TempDir()
	s := buildOf(t, reportstest.FaultRun(reportstest.StreamModels, 1000, 1, 20), dir, Options{NoPNG: true})
	terminal, markdown := outputs(t, dir, s)
	page := strings.ReplaceAll(readPage(t, dir), "\u00a0", " ")
	names, series := s.FaultsOf(s.FaultCells()[0])
	if len(names) != len(reportstest.FaultNames) || len(series) != len(reportstest.StreamModels) || names[0] != "4:fault restore-killed" {
		t.Fatalf("%v, %v", names, series)
	}
	if f := s.FaultOf(s.FaultCells()[0], "4:fault restore-killed", "synclab/nftables"); f != nil {
		t.Errorf("a fault that does not apply to the subject: %+v", f)
	}
	for _, want := range []string{`id="faults"`, `id="invariants"`, "not within 45 s", "k/k#138571", "active for 6 s", "from its start until all that it removed is back", "no wrong delivery", "3 violations", "synclab run faults --services 1000 --subjects kube-proxy/iptables-legacy --seed 7"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for name, text := range map[string]string{"terminal": terminal, "summary.md": strings.ReplaceAll(markdown, "<!-- -->", "")} {
		for _, want := range []string{"restore-killed", "addresses", "45 s", "k/k#138571", "I3"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
	checked, violations, of := s.InvariantTotals("kube-proxy/iptables-legacy")
	if checked != 9100 || violations != 12 || strings.Join(of, " ") != "I3 I9" {
		t.Errorf("%d, %d, %v", checked, violations, of)
	}
	if s.Invariants[0].Invariant != "I1" || s.Invariants[len(s.Invariants)-1].Invariant != "I13" {
		t.Errorf("invariants not by number: %s … %s", s.Invariants[0].Invariant, s.Invariants[len(s.Invariants)-1].Invariant)
	}
}

func TestFaultsGolden(t *testing.T) {
	s := buildOf(t, reportstest.FaultRun(reportstest.StreamModels, 1000, 1, 20), t.TempDir(), Options{NoPNG: true})
	golden(t, "faults.golden", []byte(terminalOf(t, s.FaultSection(), s.InvariantSection())))
}
