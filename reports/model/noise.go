package model

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// mostNoise is the maximum number of stored values of a kind: enough for a 99th percentile.
	mostNoise = 400
	// fewestNoise is the minimum number of values to draw from directly. Fewer show the width of the noise, but not its
	// shape.
	fewestNoise = 20
	// hiccup is the share by which a sync may take longer than its median for its own reasons. The machine causes any
	// further delay, whose length does not depend on the amount of work.
	hiccup = 0.5
)

// noise returns the scatter of all single values, as sorted logarithms, and the median for each.
func noise(points []Point) (logs, of []float64) {
	type scattered struct{ log, of float64 }
	var all []scattered
	for _, p := range points {
		for _, l := range p.logs {
			all = append(all, scattered{widened(l, len(p.logs)), p.Value})
		}
	}
	slices.SortFunc(all, func(a, b scattered) int { return cmp.Or(cmp.Compare(a.log, b.log), cmp.Compare(a.of, b.of)) })
	kept := min(len(all), mostNoise)
	for i := range kept {
		one := all[i]
		if len(all) > mostNoise {
			one = all[i*(len(all)-1)/(mostNoise-1)]
		}
		logs, of = append(logs, one.log), append(of, one.of)
	}
	return logs, of
}

// widened corrects a value's distance from the median of n values, which is too small because the value is one of them.
// Of two values the smaller one is the typical value, so their distance is right. A hiccup's distance is right, too.
func widened(log float64, n int) float64 {
	if n <= 2 {
		return log
	}
	distance := math.Abs(log)
	return math.Copysign(min(distance*math.Sqrt(float64(n)/float64(n-1)), max(distance, math.Log1p(hiccup))), log)
}

// Sync draws the duration of a sync of a kind that writes changedServices: the model's median with the scatter of
// single syncs in the calibration. No formula depends on changes.
func (y *Syncs) Sync(kind string, changedServices, changes int, rng *rand.Rand) time.Duration {
	log, of := y.scatter(kind, rng)
	return time.Duration(scaled(y.Median(kind, changedServices), log, of) * float64(time.Second))
}

// scaled applies the scatter of a sync with median of to a sync with another median. Scatter grows in proportion to the
// median. A hiccup of a shorter sync keeps its length. of = 0: unknown.
func scaled(median, log, of float64) float64 {
	factor := math.Exp(log)
	if held := factor - (1 + hiccup); held > 0 && of > 0 && of < median {
		return median*(1+hiccup) + of*held
	}
	return median * factor
}

// scatter draws the distance of a sync from its median, as a logarithm, and the median at which it was measured.
func (y *Syncs) scatter(kind string, rng *rand.Rand) (log, of float64) {
	values, medians := y.noise[kind], y.noiseOf[kind]
	if kind == Resync && len(values) == 0 {
		values, medians = y.noise[Full], y.noiseOf[Full]
	}
	if rng == nil || len(values) == 0 {
		return 0, 0
	}
	if len(medians) != len(values) { // an older model
		medians = make([]float64, len(values))
	}
	if len(values) < fewestNoise {
		var squares float64
		for _, v := range values {
			squares += v * v
		}
		return rng.NormFloat64() * math.Sqrt(squares/float64(len(values))), median(medians)
	}
	at := rng.Float64() * float64(len(values)-1)
	i := int(at)
	next, share := min(i+1, len(values)-1), at-float64(i)
	return values[i] + (values[next]-values[i])*share, medians[i] + (medians[next]-medians[i])*share
}
