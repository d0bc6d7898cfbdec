package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"synclab/cmd/synclab/terminal"
	"synclab/reports/capacity"
)

// grown are the quantities of --grow.
var grown = []string{"services", "endpoints", "nodes", "churn"}

// parseGrowth reads the parts of --grow: services=2x, endpoints=+20%, nodes=5000. A plain number is the final value,
// starting from today's.
func parseGrowth(parts []string, today capacity.Cluster) (capacity.Growth, error) {
	var g capacity.Growth
	into := map[string]*float64{"services": &g.Services, "endpoints": &g.Endpoints, "nodes": &g.Nodes, "churn": &g.Churn}
	from := map[string]float64{
		"services": float64(today.Services), "endpoints": today.Endpoints, "nodes": float64(today.Nodes), "churn": today.Churn.Endpoints,
	}
	grows := false
	for _, part := range parts {
		fail := func(format string, args ...any) (capacity.Growth, error) {
			return capacity.Growth{}, fmt.Errorf("--grow %s: %s", part, fmt.Sprintf(format, args...))
		}
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		factor := into[name]
		switch {
		case !ok:
			return fail("want a quantity and its growth, e.g. services=2x")
		case factor == nil:
			return fail("want one of %s", strings.Join(grown, ", "))
		case *factor != 0:
			return fail("%s is given twice", name)
		}
		value, absolute, err := parseFactor(text)
		if err == nil && absolute {
			if from[name] <= 0 {
				return fail("there are none today: a factor to this number does not exist")
			}
			value /= from[name]
		}
		switch {
		case err != nil:
			return fail("%v", err)
		case absolute && value < 1:
			return fail("today there are %s already; want more", plainNumber(from[name]))
		case value < 1:
			return fail("a cluster cannot shrink here; want growth")
		}
		*factor = value
		grows = grows || value > 1
	}
	if len(parts) > 0 && !grows {
		return capacity.Growth{}, fmt.Errorf("--grow %s: nothing grows", strings.Join(parts, ","))
	}
	return g, nil
}

// parseFactor reads 2x, +20% or, absolute, 40000.
func parseFactor(text string) (value float64, absolute bool, err error) {
	text = strings.TrimSpace(text)
	digits, kind := text, ""
	for _, suffix := range []string{"x", "X", "×", "%"} {
		if before, ok := strings.CutSuffix(text, suffix); ok {
			digits, kind = before, suffix
		}
	}
	value, err = strconv.ParseFloat(digits, 64)
	signed := strings.HasPrefix(digits, "+") || strings.HasPrefix(digits, "-")
	if err != nil || math.IsNaN(value) || math.IsInf(value, 0) || signed != (kind == "%") {
		return 0, false, fmt.Errorf("want a factor such as 2x, a share such as +20%%, or a final number")
	}
	switch kind {
	case "%":
		return 1 + value/100, false, nil
	case "":
		return value, true, nil
	}
	return value, false, nil
}

// plainNumber formats a number without an exponent, with three significant digits if it is no integer.
func plainNumber(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// sloFlags are the SLOs of a cluster.
type sloFlags struct {
	programming, firstPacket, firstSync time.Duration
	cpu, memory                         string
}

// sloNames are the flags.
var sloNames = []string{"npl-p99", "first-packet-p99", "cpu", "memory", "first-sync"}

func (f *sloFlags) register(cmd *cobra.Command) {
	usual := capacity.SLOs{}.WithDefaults()
	flags := cmd.Flags()
	flags.DurationVar(&f.programming, "npl-p99", usual.ProgrammingP99, "SLO: longest 99th percentile of network programming latency, over all changes and nodes; a `time`, 0: no SLO")
	flags.DurationVar(&f.firstPacket, "first-packet-p99", usual.FirstPacketP99, "SLO: highest cost of the rules for the first packet of a flow to the last Service; a `time`, 0: no SLO")
	flags.StringVar(&f.cpu, "cpu", plainNumber(usual.CPU), "SLO: mean `CPUs` of the proxier and its tools, e.g. 0.5 or 500m; 0: no SLO")
	flags.StringVar(&f.memory, "memory", resource.NewQuantity(int64(usual.Memory), resource.BinarySI).String(), "SLO: peak memory `size` of the proxier and its largest tool together; 0: no SLO")
	flags.DurationVar(&f.firstSync, "first-sync", usual.Start, "SLO: longest first sync of a proxier that starts on empty tables; a `time`, 0: no SLO")
	for _, flag := range sloNames {
		terminal.Complete(cmd, flag)
	}
}

// leastMemory is the smallest plausible SLO for memory, in bytes: every program in Go needs more.
const leastMemory = 4 << 20

// read returns the SLOs; the zero value, for capacity's defaults, where no flag was given.
func (f *sloFlags) read(cmd *cobra.Command) (p capacity.SLOs, err error) {
	for _, slo := range []struct {
		flag string
		time time.Duration
	}{{"npl-p99", f.programming}, {"first-packet-p99", f.firstPacket}, {"first-sync", f.firstSync}} {
		if slo.time < 0 {
			return p, badUsage(cmd, "--%s %v: want more than 0, or 0 for no SLO", slo.flag, slo.time)
		}
	}
	cpu, err := resource.ParseQuantity(f.cpu)
	if err != nil || cpu.Sign() < 0 {
		return p, badUsage(cmd, "--cpu %q: want a number of CPUs such as 0.5 or 500m", f.cpu)
	}
	memory, err := resource.ParseQuantity(f.memory)
	if err != nil || memory.Sign() < 0 {
		return p, badUsage(cmd, "--memory %q: want a size such as 512Mi or 2Gi", f.memory)
	}
	if _, bare := strconv.ParseFloat(f.memory, 64); memory.Sign() > 0 && memory.Value() < leastMemory {
		if bare == nil {
			return p, badUsage(cmd, "--memory %s: that many bytes are too few for a proxier; did you mean %sMi?", f.memory, f.memory)
		}
		return p, badUsage(cmd, "--memory %s: too little for a proxier; want %dMi or more", f.memory, leastMemory>>20)
	}
	p = capacity.SLOs{
		ProgrammingP99: f.programming, FirstPacketP99: f.firstPacket, CPU: cpu.AsApproximateFloat64(), Memory: uint64(memory.Value()), Start: f.firstSync,
	}
	if p == (capacity.SLOs{}) {
		return p, badUsage(cmd, "there is no SLO: any cluster size would meet it")
	}
	if !slices.ContainsFunc(sloNames, cmd.Flags().Changed) {
		return capacity.SLOs{}, nil
	}
	return p, nil
}
