package capacity

import (
	"fmt"
	"math"
	"strings"
	"time"

	"synclab/reports/model"
)

// significant is the number of significant digits of a number. Extrapolated numbers have fewer.
func significant(b model.Basis) int {
	if b == model.Extrapolated {
		return 2
	}
	return 3
}

// rounded rounds to a number of significant digits.
func rounded(v float64, places int) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(v)))-float64(places-1))
	return math.Round(v/unit) * unit
}

// digits formats a number with the significant digits of its basis, and commas between thousands: "21,000", "0.34".
func digits(v float64, b model.Basis) string {
	places := significant(b)
	v = rounded(v, places)
	if v == 0 {
		return "0"
	}
	decimals := max(0, places-1-int(math.Floor(math.Log10(math.Abs(v))+1e-9)))
	whole, fraction, _ := strings.Cut(fmt.Sprintf("%.*f", decimals, v), ".")
	s := thousands(whole)
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		s += "." + fraction
	}
	return s
}

// thousands puts commas between the thousands.
func thousands(whole string) string {
	var parts []string
	for len(whole) > 3 {
		parts = append([]string{whole[len(whole)-3:]}, parts...)
		whole = whole[:len(whole)-3]
	}
	return strings.Join(append([]string{whole}, parts...), ",")
}

// grouped formats a whole number exactly.
func grouped(n int) string { return thousands(fmt.Sprint(n)) }

// amount formats the quantity of an SLO with its unit: "1.2 s", "230 µs", "480 MiB", "0.31 CPUs".
func amount(quantity string, v float64, b model.Basis) string {
	switch quantity {
	case CPU:
		return digits(v, b) + " CPUs"
	case Memory:
		if v >= 1<<30 {
			return digits(v/(1<<30), b) + " GiB"
		}
		return digits(v/(1<<20), b) + " MiB"
	}
	switch {
	case v >= 120:
		return digits(v/60, b) + " min"
	case v >= 1:
		return digits(v, b) + " s"
	case v >= 1e-3:
		return digits(v*1e3, b) + " ms"
	}
	return digits(v*1e6, b) + " µs"
}

// boundText formats the bound of an SLO: "5 s".
func boundText(p SLOs, name string) string { return amount(name, p.Bound(name), model.Measured) }

// period formats a minSyncPeriod.
func period(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	return amount(ProgrammingP99, d.Seconds(), model.Measured)
}
