package doc

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Format writes a value of a unit (s, B, count, ratio) with three significant digits.
func Format(value float64, unit string) string {
	if math.IsNaN(value) {
		return "–"
	}
	switch unit {
	case "s":
		return formatSeconds(value)
	case "B":
		return formatBytes(value)
	case "ratio":
		return Significant(value*100) + " %"
	case "count", "":
		if value == math.Trunc(value) {
			return Grouped(int64(value))
		}
		return Significant(value)
	default:
		return Significant(value) + " " + unit
	}
}

func formatSeconds(s float64) string {
	switch abs := math.Abs(s); {
	case s == 0:
		return "0 s"
	case abs < 999.5e-9:
		return Significant(s*1e9) + " ns"
	case abs < 999.5e-6:
		return Significant(s*1e6) + " µs"
	case abs < 0.9995:
		return Significant(s*1e3) + " ms"
	case abs < 600:
		return Significant(s) + " s"
	default:
		return (time.Duration(math.Round(s)) * time.Second).String()
	}
}

func formatBytes(b float64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for math.Abs(b) >= 1000 && i < len(units)-1 {
		b /= 1024
		i++
	}
	return Significant(b) + " " + units[i]
}

// Significant keeps three digits, and all digits before the decimal point.
func Significant(v float64) string {
	abs := math.Abs(v)
	switch {
	case abs == 0:
		return "0"
	case abs >= 99.95:
		return Grouped(int64(math.Round(v)))
	case abs >= 9.995:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 0.01:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

// Grouped writes an integer with thousands separators: 12,345.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// Exact formats a value so that parsing returns the same value.
func Exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// TrimTick drops zeros behind the decimal point: "1.00 s" becomes "1 s", for limits and axes.
func TrimTick(label string) string {
	number, unit, _ := strings.Cut(label, " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + unit)
}
