package planning

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"synclab/reports/plan"
)

// Grown are the quantities of --grow.
var Grown = []string{"services", "endpoints", "nodes", "churn"}

// ParseGrowth reads the parts of --grow: services=2x, endpoints=+20%, nodes=5000. A plain number is the final value,
// starting from today's.
func ParseGrowth(parts []string, today plan.Cluster) (plan.Growth, error) {
	var g plan.Growth
	into := map[string]*float64{"services": &g.Services, "endpoints": &g.Endpoints, "nodes": &g.Nodes, "churn": &g.Churn}
	from := map[string]float64{
		"services": float64(today.Services), "endpoints": today.Endpoints, "nodes": float64(today.Nodes), "churn": today.Churn.Endpoints,
	}
	grows := false
	for _, part := range parts {
		fail := func(format string, args ...any) (plan.Growth, error) {
			return plan.Growth{}, fmt.Errorf("--grow %s: %s", part, fmt.Sprintf(format, args...))
		}
		name, text, ok := strings.Cut(strings.TrimSpace(part), "=")
		factor := into[name]
		switch {
		case !ok:
			return fail("want a quantity and its growth, e.g. services=2x")
		case factor == nil:
			return fail("want one of %s", strings.Join(Grown, ", "))
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
			return fail("today there are %s already; want more", PlainNumber(from[name]))
		case value < 1:
			return fail("a cluster cannot shrink here; want growth")
		}
		*factor = value
		grows = grows || value > 1
	}
	if len(parts) > 0 && !grows {
		return plan.Growth{}, fmt.Errorf("--grow %s: nothing grows", strings.Join(parts, ","))
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

// PlainNumber formats a number without an exponent, with three significant digits if it is no integer.
func PlainNumber(v float64) string {
	if v == math.Trunc(v) {
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
