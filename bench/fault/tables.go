package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/netns"
	"synclab/bench/pass"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

// tableOf is an iptables table of one family.
type tableOf struct {
	family corev1.IPFamily
	table  string
}

func (t tableOf) String() string { return string(t.family) + " " + t.table }

// placesOf returns the tables that a fault's field table names.
func (r *Faults) placesOf(table string) []tableOf {
	tables := []string{table}
	if table == "all" {
		tables = []string{"nat", "filter", "mangle"}
	}
	var places []tableOf
	for _, family := range r.Families {
		for _, table := range tables {
			places = append(places, tableOf{family, table})
		}
	}
	return places
}

// ownPrefix is the name prefix of a proxier's chains in iptables.
const ownPrefix = "KUBE-"

func isOwn(chain string) bool { return strings.HasPrefix(chain, ownPrefix) }

// runTool calls iptables once, as another program on the node does.
func (r *Faults) runTool(ctx context.Context, family corev1.IPFamily, args ...string) (string, error) {
	if err := netns.Guard(); err != nil {
		return "", err
	}
	variant := r.KernelVariant()
	path, err := iptables.FindBinary(iptables.Binary(variant, family, ""))
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, append(iptables.LockWait(variant), args...)...).CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", iptables.Binary(variant, family, ""), strings.Join(args, " "), err, text)
	}
	return text, nil
}

// jumpAt is a rule of a base chain that jumps to a chain of the subject.
type jumpAt struct {
	base string
	at   int // from 1
	rule string
}

// jumpsIn returns the jumps of a table, in the order of the base chains' names.
func (r *Faults) jumpsIn(ctx context.Context, place tableOf, tally map[string]int) ([]jumpAt, error) {
	var jumps []jumpAt
	for _, base := range []string{"FORWARD", "INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"} {
		if tally[base] == 0 {
			continue
		}
		rules, err := r.rulesOf(ctx, place, base)
		if err != nil {
			return nil, err
		}
		for i, rule := range rules {
			if strings.Contains(rule, " -j "+ownPrefix) {
				jumps = append(jumps, jumpAt{base, i + 1, rule})
			}
		}
	}
	return jumps, nil
}

// blindLook is how often tables are read although they seem unchanged: legacy tables show a change only by their size.
const blindLook = 250 * time.Millisecond

// watched reports what the tables lack. It reads them only when they seem to have changed.
func (r *Faults) watched(places []tableOf, stillMissing func(tableOf, map[string]int) (string, error)) func() (string, error) {
	variant := string(r.KernelVariant())
	var stamps []uint64
	var looked time.Time
	var answer string
	return func() (string, error) {
		var now []uint64
		for _, place := range places {
			stamp, err := kernel.Stamp(variant, place.family, place.table)
			if err != nil {
				return "", err
			}
			now = append(now, stamp)
		}
		if slices.Equal(now, stamps) && r.Clock.Since(looked) < blindLook {
			return answer, nil
		}
		stamps, looked, answer = now, r.Clock.Now(), ""
		for _, place := range places {
			tally, err := kernel.TallyOnce(variant, place.family, place.table)
			if kernel.Changed(err) {
				stamps, answer = nil, place.String()+" changes continuously"
				return answer, nil
			}
			if err != nil {
				return "", err
			}
			if answer, err = stillMissing(place, tally); err != nil || answer != "" {
				return answer, err
			}
		}
		return "", nil
	}
}

// flushed empties tables. They are repaired when each shared chain that had rules has rules again, and the base chains
// jump to the subject as often as before. package visible checks the Services' own chains anyway.
func (r *Faults) flushed(ctx context.Context, f *scenarios.Fault, name string) error {
	if r.About.Nftables() {
		return r.flushedNftables(ctx, f, name)
	}
	places := r.placesOf(f.Table)
	before := map[tableOf]map[string]int{}
	for _, place := range places {
		tally, err := kernel.Tally(string(r.KernelVariant()), place.family, place.table)
		if err != nil {
			return err
		}
		jumps, err := r.jumpsIn(ctx, place, tally)
		if err != nil {
			return err
		}
		keep := map[string]int{}
		for chain, n := range tally {
			if isOwn(chain) && !perService(chain) && n > 0 { // empty chains are canaries, or only targets of jumps
				keep[chain] = 1
			}
		}
		for _, jump := range jumps {
			keep[jump.base]++
		}
		before[place] = keep
	}
	began := r.Clock.Now() // before the flush: the subject may detect it at once
	for _, family := range r.Families {
		if err := r.flush(ctx, family, f.Table); err != nil {
			return err
		}
	}
	d, err := r.startFault(ctx, f, name, &activeFault{began: began, stillMissing: r.watched(places, func(place tableOf, now map[string]int) (string, error) {
		for chain, n := range before[place] {
			if has, there := now[chain]; !there || has < n {
				return fmt.Sprintf("%s: %s has %d rules", place, chain, has), nil
			}
		}
		return "", nil
	})})
	if err != nil {
		return err
	}
	r.Host.Subject.Disturbed()
	r.follow(d)
	return r.TableEmptied(ctx, f.Table)
}

// perService reports whether a chain is created and deleted with Services.
func perService(chain string) bool {
	return iptables.IsServiceChain(chain) || strings.HasPrefix(chain, "KUBE-TREE-")
}

// deleted deletes one object in each family.
func (r *Faults) deleted(ctx context.Context, f *scenarios.Fault, name string, lot *rand.Rand) error {
	if r.About.Nftables() {
		return r.deletedNftables(ctx, f, name, lot)
	}
	before, taken := r.Clock.Now(), map[tableOf]lost{}
	var places []tableOf
	for _, place := range r.placesOf(f.Table) {
		tally, err := kernel.Tally(string(r.KernelVariant()), place.family, place.table)
		if err != nil {
			return err
		}
		l, err := r.take(ctx, f.Object, place, tally, lot)
		if err != nil {
			return err
		}
		if l.chain == "" {
			r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s: %s has no such object of the subject", describe(name, f), place)})
			continue
		}
		taken[place] = l
		places = append(places, place)
	}
	if len(places) == 0 {
		return nil
	}
	d, err := r.startFault(ctx, f, name, &activeFault{began: before, stillMissing: r.watched(places, func(place tableOf, now map[string]int) (string, error) {
		l := taken[place]
		if !r.wanted(l, before) {
			return "", nil
		}
		return l.stillMissing(place, now, func(chain string) ([]string, error) { return r.rulesOf(r.Context(), place, chain) })
	})})
	if err != nil {
		return err
	}
	for _, place := range places {
		r.note(d, "%s: %s", place, taken[place].what)
	}
	r.Host.Subject.Disturbed()
	r.follow(d)
	return nil
}

// lost is what a fault deleted from a chain.
type lost struct {
	chain         string
	before, after int // rules
	what          string
	// rule is the single deleted rule, and left the rest of the chain, as iptables -S prints them; nil: all rules were
	// deleted.
	rule string
	left []string
}

// stillMissing reports whether a chain is still as the fault left it. The chain was written since if it has other
// rules. If a Service's chain is gone, it is not needed any more. The number of rules is not enough: a change of the
// cluster may have removed a rule meanwhile.
func (l lost) stillMissing(place tableOf, now map[string]int, read func(chain string) ([]string, error)) (string, error) {
	n, there := now[l.chain]
	whole := n >= l.before || perService(l.chain) && (!there || n > 0 && n != l.after) || l.rule == "" && n > l.after
	if whole {
		return "", nil
	}
	if there && l.rule != "" {
		rules, err := read(l.chain)
		if err != nil {
			return "", err
		}
		if slices.Contains(rules, l.rule) || isOwn(l.chain) && len(rules) > 0 && !slices.Equal(rules, l.left) {
			return "", nil
		}
	}
	return fmt.Sprintf("%s: %s has %d rules, want %d", place, l.chain, n, l.before), nil
}

// commented matches the Service that a rule's comment names.
var commented = regexp.MustCompile(`--comment "?([^\s"/]+)/([^\s":]+)`)

// wanted reports whether a deleted rule must come back. If its Service has changed since, it may not have to. package
// visible checks the Service's endpoints anyway.
func (r *Faults) wanted(l lost, since time.Time) bool {
	m := commented.FindStringSubmatch(l.rule)
	return m == nil || !r.touchedSince(types.NamespacedName{Namespace: m[1], Name: m[2]}, since)
}

// rulesOf reads the rules of a chain, as iptables -S prints them.
func (r *Faults) rulesOf(ctx context.Context, place tableOf, chain string) ([]string, error) {
	text, err := r.runTool(ctx, place.family, "-t", place.table, "-S", chain)
	if err != nil {
		return nil, err
	}
	var rules []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "-A ") {
			rules = append(rules, strings.TrimSpace(line))
		}
	}
	return rules, nil
}

// take deletes an object chosen at random; the zero value: there is none.
func (r *Faults) take(ctx context.Context, object string, place tableOf, tally map[string]int, lot *rand.Rand) (lost, error) {
	if object == "jump" {
		jumps, err := r.jumpsIn(ctx, place, tally)
		if err != nil || len(jumps) == 0 {
			return lost{}, err
		}
		jump := jumps[lot.IntN(len(jumps))]
		return r.takeRule(ctx, place, jump.base, jump.at, "deleted "+jump.rule)
	}
	chain := drawChain(tally, lot)
	if chain == "" {
		return lost{}, nil
	}
	n := tally[chain]
	if object == "chain" {
		_, err := r.runTool(ctx, place.family, "-t", place.table, "-F", chain)
		return lost{chain: chain, before: n, what: fmt.Sprintf("flushed %s of %d rules", chain, n)}, err
	}
	at := 1 + lot.IntN(n)
	return r.takeRule(ctx, place, chain, at, fmt.Sprintf("deleted rule %d of %d of %s", at, n, chain))
}

// takeRule deletes one rule of a chain, counted from 1.
func (r *Faults) takeRule(ctx context.Context, place tableOf, chain string, at int, what string) (lost, error) {
	rules, err := r.rulesOf(ctx, place, chain)
	if err != nil {
		return lost{}, err
	}
	if at > len(rules) {
		return lost{}, fmt.Errorf("%s: %s has only %d rules now: rule %d was deleted meanwhile", place, chain, len(rules), at)
	}
	l := lost{chain: chain, before: len(rules), after: len(rules) - 1, what: what, rule: rules[at-1]}
	l.left = slices.Delete(slices.Clone(rules), at-1, at)
	_, err = r.runTool(ctx, place.family, "-t", place.table, "-D", chain, strconv.Itoa(at))
	return l, err
}

// drawChain chooses the kind of chain first, since almost all chains belong to single endpoints.
func drawChain(tally map[string]int, lot *rand.Rand) string {
	kinds := map[string][]string{}
	for chain, n := range tally {
		if !isOwn(chain) || n == 0 {
			continue
		}
		kind := "shared"
		if perService(chain) {
			kind = chain[:strings.LastIndexByte(chain, '-')]
			if strings.HasPrefix(chain, "KUBE-TREE-") {
				kind = "KUBE-TREE"
			}
		}
		kinds[kind] = append(kinds[kind], chain)
	}
	if len(kinds) == 0 {
		return ""
	}
	var names []string
	for kind := range kinds {
		names = append(names, kind)
	}
	slices.Sort(names)
	chains := kinds[names[lot.IntN(len(names))]]
	slices.Sort(chains)
	return chains[lot.IntN(len(chains))]
}
