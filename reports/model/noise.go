package model

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

const (
	// mostNoise is how many values of a kind are kept: enough for a 99th percentile.
	mostNoise = 400
	// fewestNoise values are drawn from as they are. Fewer say how wide the noise is, but not how it is shaped.
	fewestNoise = 20
	// hiccup is the part of a sync by which others may take longer for reasons of their own. What takes longer still was
	// held up by the machine, for a time that has nothing to do with how much there was to do.
	hiccup = 0.5
)

// noise pools how single values scatter, as logarithms in order, and of which medians.
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

// widened is how far a value is from the median of n that it is one of, which makes it look nearer to it than it is. Of two
// the typical one is the smaller, whose distance from the other is not too small; nor is that of a hiccup from the others.
func widened(log float64, n int) float64 {
	if n <= 2 {
		return log
	}
	distance := math.Abs(log)
	return math.Copysign(min(distance*math.Sqrt(float64(n)/float64(n-1)), max(distance, math.Log1p(hiccup))), log)
}

// Sync draws how long one sync of a kind takes that had changedServices to write: the model's median, and the scatter that single
// syncs had in the calibration. How many changes there were of these Services does not matter to any law.
func (y *Syncs) Sync(kind string, changedServices, changes int, rng *rand.Rand) time.Duration {
	log, of := y.scatter(kind, rng)
	return time.Duration(scaled(y.Median(kind, changedServices), log, of) * float64(time.Second))
}

// scaled is what a sync takes whose median is known, as far from that as another was from its own median, of: in
// proportion, but for hiccups, which last no longer because a sync is longer. An of of 0 is not known.
func scaled(median, log, of float64) float64 {
	factor := math.Exp(log)
	if held := factor - (1 + hiccup); held > 0 && of > 0 && of < median {
		return median*(1+hiccup) + of*held
	}
	return median * factor
}

// scatter draws how far a sync is from its median, as a logarithm, and of which median that was measured.
func (y *Syncs) scatter(kind string, rng *rand.Rand) (log, of float64) {
	values, medians := y.noise[kind], y.noiseOf[kind]
	if kind == Resync && len(values) == 0 {
		values, medians = y.noise[Full], y.noiseOf[Full]
	}
	if rng == nil || len(values) == 0 {
		return 0, 0
	}
	if len(medians) != len(values) { // of an older model
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
