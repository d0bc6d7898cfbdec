package virtualtest

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
)

// The properties, with the numbers of the invariants.
const (
	inSync    = "I1/I6: converges without an event once faults have stopped"
	untouched = "I7: rules of other programs are unchanged"
	flowsGone = "I9: stale UDP flows are deleted, and no other flows"
	healthy   = "I11: /livez reports missing rules"
	metered   = "I12: metrics are correct"
	hourly    = "I6: a full sync happens periodically"
)

// Other failures: the proxier exits unexpectedly, or the test itself cannot continue.
const (
	ended = "run"
	lab   = "lab"
)

const (
	// slowest is the longest remaining time of a slow restore.
	slowest = 110 * time.Second
	// syncTime is longer than most syncs, including their waits.
	syncTime = 20 * time.Second
	// lookEvery is the interval of comparisons of the tables.
	lookEvery = 2 * time.Second
	// fullEvery bounds the time between full syncs. A full sync is due an hour after the last one, and happens with the
	// next sync. That sync comes at most an hour after the previous one.
	fullEvery = 2*time.Hour + 5*time.Minute
)

// calm clears all faults and checks all properties that must hold afterwards.
func (k *soak) calm(a Action) {
	bound := slowest + 2*syncPeriod + syncTime
	hidden := time.Duration(0)
	for _, family := range k.setting.Families {
		k.kernels[family].calm(a.Pick%2 == 0)
		hidden = max(hidden, k.kernels[family].hidden())
	}
	k.flowsOK = time.Time{}
	k.flowsWork()
	k.healWatches()
	bound += hidden
	if k.refusing {
		bound += time.Hour // the longest time before a refused rule is retried
		k.refusing = false
	}
	wanted, err := k.wanted()
	if err != nil {
		k.broken(lab, err.Error())
		return
	}
	for began := time.Now(); ; time.Sleep(lookEvery) {
		synctest.Wait()
		what := k.lacking(wanted)
		if what == "" {
			break
		}
		if time.Since(began) > bound {
			k.broken(inSync, fmt.Sprintf("not converged %v after the faults were cleared: %s", time.Since(began).Round(time.Second), what))
			return
		}
	}
	k.disturbed = false
	// The tables must stay unchanged.
	time.Sleep(2*syncPeriod + time.Duration(a.Pick%1e9))
	synctest.Wait()
	if what := k.lacking(wanted); what != "" {
		k.broken(inSync, "converged, but diverged again: "+what)
		return
	}
	k.checkCalm(wanted)
}

// lacking describes what has not converged; empty if all has.
func (k *soak) lacking(wanted map[corev1.IPFamily]fresh) string {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	if err := k.proxier.WaitIdle(now); err != nil {
		return err.Error()
	}
	for _, family := range k.setting.Families {
		if what := k.kernels[family].differs(wanted[family]); what != "" {
			return fmt.Sprintf("%s:%s", family, what)
		}
	}
	return ""
}

func (k *soak) checkCalm(wanted map[corev1.IPFamily]fresh) {
	k.checkIntact()
	if code, body := k.livez(); code != http.StatusOK {
		k.broken(healthy, fmt.Sprintf("/livez returns %d after the faults were cleared: %s", code, body))
	}
	k.checkFlows()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, family := range k.setting.Families {
		last := k.lastFull[family]
		if !last.IsZero() && time.Since(last) > fullEvery {
			k.broken(hourly, fmt.Sprintf("%s: the last full sync was %v ago", family, time.Since(last)))
		}
		k.checkMetrics(family, wanted[family])
	}
}

// checkMetrics compares the counts of the last sync, which set the gauges, with the tables.
func (k *soak) checkMetrics(family corev1.IPFamily, wanted fresh) {
	if wanted.iptables == nil {
		return
	}
	last, any := k.syncs[family]
	if !any {
		return
	}
	for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
		rules := 0
		text := savedOf(wanted.iptables)
		_, text, _ = strings.Cut(text, "*"+string(table)+"\n")
		text, _, _ = strings.Cut(text, "COMMIT\n")
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "-A KUBE-") {
				rules++
			}
		}
		if reported := last.Installed[table].Rules; reported != rules {
			k.broken(metered, fmt.Sprintf("%s %s: the sync reported %d rules, the table has %d", family, table, reported, rules))
		}
	}
}

// look checks the properties that must hold at any time.
func (k *soak) look(a Action) {
	k.checkIntact()
	k.mu.Lock()
	failing := time.Duration(0)
	for _, since := range k.failing {
		failing = max(failing, time.Since(since))
	}
	k.mu.Unlock()
	if code, body := k.livez(); failing > 2*syncPeriod && code == http.StatusOK {
		k.broken(healthy, fmt.Sprintf("syncs have been failing for %v, but /livez returns %d: %s", failing, code, body))
	}
}

func (k *soak) checkIntact() {
	for _, family := range k.setting.Families {
		if what := k.kernels[family].intact(); what != "" {
			k.broken(untouched, fmt.Sprintf("%s:%s", family, what))
		}
	}
}

// answer records a response of the health server.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(code int)        { a.code = code }
func (a *answer) Write(p []byte) (int, error) { return a.body.Write(p) }

func (k *soak) livez() (code int, body string) {
	a := &answer{header: http.Header{}, code: http.StatusOK}
	k.proxier.Handler().ServeHTTP(a, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/livez"}, Header: http.Header{}})
	return a.code, a.body.String()
}

// wanted returns the tables that fresh proxiers would write, by family.
func (k *soak) wanted() (map[corev1.IPFamily]fresh, error) {
	all := map[corev1.IPFamily]fresh{}
	opts := k.options()
	tables := map[corev1.IPFamily]*nftables.Model{}
	opts.Model = func(family corev1.IPFamily) *nftables.Model {
		tables[family] = nftables.NewModel(family)
		return tables[family]
	}
	services, slices := k.state.objects()
	models, err := proxier.Render(context.Background(), opts, services, slices, k.state.node)
	if err != nil {
		return nil, fmt.Errorf("rendering the desired tables: %w", err)
	}
	for i, family := range k.setting.Families {
		f := fresh{nftables: tables[family], world: walk.NodeAddresses{Local: k.addrs}}
		if f.nftables == nil {
			f.iptables = models[i]
		} else {
			population := walk.PacketSet{Frontends: walk.ObjectFrontends(family, services, slices), World: f.world, Seed: uint64(k.lines), Least: 100}
			f.packets = sample(population.Packets(family == corev1.IPv4Protocol), mostWalked)
			k.report.Packets += len(f.packets)
		}
		all[family] = f
	}
	return all, nil
}

// mostWalked is the most packets in a check.
const mostWalked = 1500

// sample returns every n-th packet.
func sample(packets []walk.Packet, most int) []walk.Packet {
	if len(packets) <= most {
		return packets
	}
	step := len(packets)/most + 1
	var some []walk.Packet
	for i := 0; i < len(packets); i += step {
		some = append(some, packets[i])
	}
	return some
}
