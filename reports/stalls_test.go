package reports

import (
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/reportstest"
)

// A stall of the kernel is in the verdict, with the subject during whose repetition it was. Where the log could not be
// read, the page says so. A run whose log has no stall says nothing.
func TestStalls(t *testing.T) {
	const unobserved = "stalls of the kernel were not observed in 1 repetition: /dev/kmsg: permission denied"
	for _, c := range []struct {
		what         string
		records      []raw.Record
		wants, lacks string
	}{
		{"a stall", []raw.Record{
			{Metric: raw.KernelStall, Value: 24, Unit: "s", Kind: "soft lockup", Task: "nft", Step: "2:settle", Error: "watchdog: BUG: soft lockup"},
			{Metric: raw.KernelStalls, Value: 1, Unit: "count"},
		}, "The kernel stalled during 1 of 1 repetition of kube-proxy/nftables at 10 Services × 1 endpoint: soft lockup, up to 24.0 s, in task nft.", unobserved},
		{"one stall that lasts, of a repetition that was killed", []raw.Record{
			{Metric: raw.KernelStall, Value: 24, Unit: "s", Kind: "soft lockup", Step: "2:settle", At: 5, Error: "watchdog: BUG: soft lockup"},
			{Metric: raw.KernelStall, Value: 48, Unit: "s", Kind: "soft lockup", Step: "2:settle", At: 5, Error: "watchdog: BUG: soft lockup"},
		}, "The kernel stalled during 1 of 1 repetition of kube-proxy/nftables at 10 Services × 1 endpoint: soft lockup, up to 48.0 s.", unobserved},
		{"a long gap", []raw.Record{{Metric: raw.ScheduleGap, Value: 0.2, Unit: "s", Kind: "CPU 0", Step: "1:create"}, {Metric: raw.ScheduleGap, Value: 2, Unit: "s", Kind: "CPU 1", Step: "2:settle"}},
			"With kube-proxy/nftables at 10 Services × 1 endpoint, another process could not run on one CPU for 2.00 s (step settle).", "The kernel stalled"},
		{"no stall", []raw.Record{{Metric: raw.KernelStalls, Value: 0, Unit: "count"}}, "", "stall"},
		{"no log", []raw.Record{{Metric: raw.StallsUnobserved, Value: 1, Unit: "count", Error: "/dev/kmsg: permission denied"}}, unobserved, "The kernel stalled"},
	} {
		t.Run(c.what, func(t *testing.T) {
			y := reportstest.StreamRun(reportstest.StreamModels[2:3], 2, 1, 200, 1)
			y.Records = append(c.records, raw.Record{Metric: raw.ColdStart, Value: 2, Unit: "s"})
			for i := range y.Records {
				r := &y.Records[i]
				r.Subject, r.Services, r.Endpoints, r.Rep = "kube-proxy/nftables", 10, 2, 1
			}
			dir := t.TempDir()
			_, markdown := outputs(t, dir, buildOf(t, y, dir, Options{NoPNG: true}))
			if !strings.Contains(markdown, c.wants) || strings.Contains(strings.ReplaceAll(markdown, "stalls of the kernel in a repetition", ""), c.lacks) {
				t.Errorf("want %q and not %q in\n%s", c.wants, c.lacks, markdown)
			}
		})
	}
}

// A machine whose caches are slower beside one repetition than beside another is named, and one that is steady is not.
func TestUnsteadyCaches(t *testing.T) {
	const says = "on CPU 1, one load from 4 MiB took 20.0 ns beside one repetition, and 50.0 ns beside another"
	for slower, want := range map[float64]bool{50e-9: true, 30e-9: false} {
		y := reportstest.StreamRun(reportstest.StreamModels[2:3], 2, 1, 200, 2)
		y.Records = nil
		for i, at := range []struct {
			metric raw.Metric
			kind   string
			value  float64
			rep    int
		}{{raw.ColdStart, "", 2, 1}, {raw.CacheLoad, "CPU 0", 150e-9, 1}, {raw.CacheLoad, "CPU 1", 18e-9, 1}, {raw.CacheLoad, "CPU 1", 20e-9, 1},
			{raw.ColdStart, "", 2, 2}, {raw.CacheLoad, "CPU 0", 150e-9, 2}, {raw.CacheLoad, "CPU 1", slower, 2}} {
			y.Records = append(y.Records, raw.Record{Metric: at.metric, Kind: at.kind, Value: at.value, Unit: "s", At: float64(i), Subject: "kube-proxy/nftables", Services: 10, Endpoints: 2, Rep: at.rep})
		}
		dir := t.TempDir()
		_, markdown := outputs(t, dir, buildOf(t, y, dir, Options{NoPNG: true}))
		if got := strings.Contains(markdown, says); got != want {
			t.Errorf("%v s: warned %t in\n%s", slower, got, markdown)
		}
	}
}
