package scenarios

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// drawFaults draws n faults of a round, of different kinds that do not exclude each other.
func (d *drawing) drawFaults(n int) []*Fault {
	var kinds []string
	for _, kind := range FaultKinds() {
		if kind != FaultClear && !d.without(kind) && !d.without("fault") {
			kinds = append(kinds, kind)
		}
	}
	var faults []*Fault
	for range n {
		if len(kinds) == 0 {
			break
		}
		kind := pick(d, kinds...)
		faults = append(faults, d.drawFault(kind))
		kinds = slices.DeleteFunc(kinds, func(other string) bool { return excludes(kind, other) })
	}
	return faults
}

// excludes reports whether faults of kinds a and b do not fit into one round.
func excludes(a, b string) bool {
	whole := (&Fault{Kind: a}).form().whole
	return a == b || whole != "" && whole == (&Fault{Kind: b}).form().whole
}

// drawFault draws the fields of a fault of one kind.
func (d *drawing) drawFault(kind string) *Fault {
	f := &Fault{Kind: kind}
	form := f.form()
	if form.has("times") {
		f.Times = d.between(1, 4)
	}
	if form.has("for") {
		f.For = d.span(time.Second, 8*time.Second)
	}
	if form.has("table") {
		f.Table = pick(d, "nat", "nat", "filter", "mangle", "all")
	}
	if form.has("object") {
		f.Object = pick(d, "jump", "chain", "rule")
		if f.Table == "all" {
			f.Table = "nat"
		}
	}
	if form.has("elements") { // far fewer than the default: each list of all of them takes a second, and a soak has many seeds
		f.Elements, f.Rules = 100*d.between(1, 30), 10*d.between(1, 20)
	}
	if form.has("bytes") {
		f.Bytes = int64(d.between(3, 8)) << 24 // 48 MiB, which may kill a proxier of few Services, to 128 MiB
	}
	return f
}

// checkWithout refuses words that Random does not know: a misspelt word would silently leave nothing out.
func checkWithout(words []string) error {
	known := slices.Concat(randomChanges, []string{"fault", "traffic", "check"}, FaultKinds())
	for _, word := range words {
		if !slices.Contains(known, word) {
			return fmt.Errorf("cannot leave out %s: no such kind of step or fault; want some of %s", quote(word), strings.Join(known, ", "))
		}
	}
	return nil
}
