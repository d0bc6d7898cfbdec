package fault

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// tableOf is an iptables table of one family.
type tableOf struct {
	family corev1.IPFamily
	table  string
}

func (t tableOf) String() string { return string(t.family) + " " + t.table }

// Tables returns the tables of iptables that a fault's field table names.
func Tables(table string) []string {
	if table == "all" {
		return []string{"nat", "filter", "mangle"}
	}
	return []string{table}
}

// placesOf returns the tables that a fault's field table names.
func (r *Faults) placesOf(table string) []tableOf {
	var places []tableOf
	for _, family := range r.Families {
		for _, table := range Tables(table) {
			places = append(places, tableOf{family, table})
		}
	}
	return places
}

// ownPrefix is the name prefix of a proxier's chains in iptables.
const ownPrefix = "KUBE-"

func isOwn(chain string) bool { return strings.HasPrefix(chain, ownPrefix) }

// iptablesOf are the tools of one variant and family. They run as another program on the node runs them, in the network
// namespace of the calling thread.
type iptablesOf struct {
	variant iptables.Variant
	family  corev1.IPFamily
}

// run runs iptables, or iptables-restore if tool is "restore".
func (t iptablesOf) run(ctx context.Context, tool string, stdin io.Reader, args ...string) (string, error) {
	if err := netns.Guard(); err != nil {
		return "", err
	}
	tool = iptables.Binary(t.variant, t.family, tool)
	path, err := iptables.FindBinary(tool)
	if err != nil {
		return "", err
	}
	args = append(iptables.LockWait(t.variant), args...)
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = stdin
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return text, fmt.Errorf("%s %s: %w: %s", tool, strings.Join(args, " "), err, text)
	}
	return text, nil
}

func (r *Faults) runTool(ctx context.Context, family corev1.IPFamily, args ...string) (string, error) {
	return iptablesOf{r.KernelVariant(), family}.run(ctx, "", nil, args...)
}

// othersIptables are the tools of other programs: of the subject's variant, or iptables-nft beside nftables.
func (r *Faults) othersIptables() iptablesOf {
	if r.About.Nftables() {
		return iptablesOf{iptables.Nft, r.Families[0]}
	}
	return iptablesOf{r.KernelVariant(), r.Families[0]}
}

// restoreForeign adds rules to tables.
func (r *Faults) restoreForeign(ctx context.Context, family corev1.IPFamily, payload io.Reader) error {
	_, err := iptablesOf{r.KernelVariant(), family}.run(ctx, "restore", payload, "--noflush")
	return err
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
	var fingerprints []uint64
	var looked time.Time
	var answer string
	return func() (string, error) {
		var now []uint64
		for _, place := range places {
			fingerprint, err := kernel.Fingerprint(variant, place.family, place.table)
			if err != nil {
				return "", err
			}
			now = append(now, fingerprint)
		}
		if slices.Equal(now, fingerprints) && r.Clock.Since(looked) < blindLook {
			return answer, nil
		}
		fingerprints, looked, answer = now, r.Clock.Now(), ""
		for _, place := range places {
			tally, err := kernel.TallyOnce(variant, place.family, place.table)
			if kernel.Changed(err) {
				fingerprints, answer = nil, place.String()+" changes continuously"
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

// perService reports whether a chain is created and deleted with Services.
func perService(chain string) bool {
	return iptables.IsServiceChain(chain) || strings.HasPrefix(chain, "KUBE-TREE-")
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

func hasChain(tally map[string]int, chain string) bool { _, ok := tally[chain]; return ok }
