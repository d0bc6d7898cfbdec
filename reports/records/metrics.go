package records

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"synclab/reports/doc"
)

// EndpointsText writes a mean number of endpoints: 10, or 9.7.
func EndpointsText(e float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(e, 'f', 1, 64), ".0")
}

// PositionText is the display name of a probed position.
func PositionText(position int) string {
	switch position {
	case -1:
		return "miss"
	case 0:
		return "empty ruleset"
	default:
		return "position " + doc.Grouped(int64(position))
	}
}

// NaturalCompare orders settings ("a=1s b=x") by value: 500ms before 1s before 10s, 9 before 10.
func NaturalCompare(a, b string) int {
	fa, fb := strings.Fields(a), strings.Fields(b)
	for i := range min(len(fa), len(fb)) {
		na, va, _ := strings.Cut(fa[i], "=")
		nb, vb, _ := strings.Cut(fb[i], "=")
		if c := cmp.Or(strings.Compare(na, nb), CompareValues(va, vb)); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(fa), len(fb))
}

func CompareValues(a, b string) int {
	x, okx := Quantity(a)
	y, oky := Quantity(b)
	if okx && oky && x != y {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

// Quantity reads a swept value as a number, or as a duration in seconds.
func Quantity(text string) (float64, bool) {
	if v, err := strconv.ParseFloat(text, 64); err == nil {
		return v, true
	}
	if d, err := time.ParseDuration(text); err == nil {
		return d.Seconds(), true
	}
	return 0, false
}

// Distinct returns the different values in order of first appearance.
func Distinct[T comparable](values []T) []T {
	var out []T
	for _, v := range values {
		if !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
