package diff

import (
	"cmp"
	"fmt"

	"synclab/reports/doc"
	"synclab/reports/records"
)

// headText names a run.
func headText(r *records.RunHead) string {
	return fmt.Sprintf("%s: %s, %s, synclab %s, %s", r.Label, r.Scenario, doc.Plural(r.Reps, "repetition"), cmp.Or(r.Versions.Synclab, "unknown"),
		r.Started.UTC().Format("2006-01-02 15:04 UTC"))
}

// percent has two digits.
func percent(share float64) string { return fmt.Sprintf("%.2g %%", 100*share) }

// method explains the verdicts.
func (d *Diff) method() string {
	text := "Medians of the repetitions' medians (or 99th percentiles); n: repetitions with a value, before and after, the unit of tests and intervals. "
	tests := doc.Plural(d.Tests, "test")
	if len(d.Pairs) > 0 {
		text += fmt.Sprintf("Both took turns in each repetition, which makes pairs. Ratio: after over before, with the 95 %% interval of the pairs’ median, below 6 pairs by Student’s t on logarithms. "+
			"p: twice the smaller one of Student’s t on logarithms and a sign test on the pairs; adjusted for the %s, those of the main figures and the others apart (%s), and intervals are not: "+
			"one may exclude 1 where no difference is shown; ", tests, d.Correction)
	} else {
		scatter := percent(d.Usual()) + "; --history takes that of earlier runs"
		if d.Scattered > 0 {
			scatter = "that of the history for " + doc.Plural(d.Scattered, "figure") + ", else " + percent(d.Usual())
		}
		text += fmt.Sprintf("Ratio: after over before, with its 95 %% interval by ranks (Hodges-Lehmann; from 4 repetitions on), "+
			"widened by the scatter of runs (%s). p: Mann-Whitney U, two-sided, "+
			"or what the scatter of runs explains if that is more; adjusted for %s (%s); ", scatter, tests, d.Correction)
	}
	text += fmt.Sprintf("at most %v is a difference. A row is beyond its threshold if the same test shows that it exceeds it. Counts that never vary within a run are compared exactly. "+
		"“No difference shown” is not “same”: noise may hide a difference as large as the threshold. ", d.Level)
	if len(d.Pairs) == 0 {
		text += "A slower machine during one of the runs looks like a difference, too."
	}
	return text
}
