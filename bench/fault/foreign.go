package fault

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultForeign, inject: (*Faults).stand, lasts: untilCleared, shows: eachVisible,
		spares: []spare{onlyMaps, {"this machine has no nft, with which another program would make its table", func(*pass.Env, *scenarios.Fault) bool {
			_, err := ownNft()
			return err != nil
		}}},
	})
}

// The foreign table of nftables, and the foreign chains: one with a dispatch rule for each pod, and one for each pod's policy.
const (
	standingTable = "foreign-standing"
	standingPods  = "FOREIGN-PODS"
	standingPod   = "FOREIGN-POD-"
	rulesOfPod    = 10 // the dispatch rule, and its policy
)

// An ordinary user's transactions are small.
const elementsAtOnce, podsAtOnce = 1000, 30

// newSets are sets and maps that tools of some age cannot list or print. What this nft or kernel refuses is left out, with a
// remark.
var newSets = []struct{ what, declaration string }{
	{"concatenated intervals (Linux 5.6)", "set intervals { type ipv4_addr . inet_service; flags interval; elements = { 198.18.0.0/24 . 1000-2000 }; }"},
	{"typeof (nft 0.9.4)", "set typed { typeof ip daddr . tcp dport; elements = { 198.18.0.1 . 80 }; }"},
	{"a catchall element (Linux 5.13)", "map catchall { type ipv4_addr : mark; elements = { 198.18.0.1 : 0x1, * : 0x2 }; }"},
	{"a dynamic set with timeouts", "set aging { type ipv4_addr; size 65535; flags dynamic,timeout; timeout 12h; elements = { 198.18.0.1 timeout 6h }; }"},
	{"a set with two expressions (Linux 5.11)", "set expressions { type ipv4_addr; size 65535; flags dynamic; limit rate 1/second counter; }"},
	{"a map with counters and intervals", "map counters { typeof ip saddr . ip daddr : meta mark; flags interval; counter; elements = { 198.18.0.0/24 . 198.18.9.0/24 counter : 0x1 }; }"},
	{"verdicts by interval and catchall", "map verdicts { typeof ip daddr . tcp dport : verdict; flags interval; elements = { 198.18.0.0/24 . 1-5 : drop, * : accept }; }"},
	{"names of interfaces by prefix", "set interfaces { type ifname . ipv4_addr; flags interval; elements = { \"eth*\" . 198.18.0.0/24 }; }"},
	{"raw bytes of the payload (@nh)", "set raw { typeof @nh,96,32; elements = { 0xc6120001 }; }"},
	{"raw bytes of the inner payload (@ih; Linux 5.16)", "set inner { typeof @ih,32,32; elements = { 0x29 }; }"},
	{"a bitwise key", "set bitwise { typeof ip saddr & 255.255.255.0; }"},
}

// stand makes what another program has in the kernel, and checks at the end that it is unchanged: a table of nftables with a
// map of so many elements and the newSets, and chains of pods in table filter, as of NetworkPolicies. The variant of iptables
// is the subject's; with nftables it is iptables-nft.
func (r *Faults) stand(ctx context.Context, d *activeFault) error {
	tools := r.othersIptables()
	d.stops = append(d.stops, func() error {
		_, err := nft(context.Background(), "add table inet "+standingTable+"\ndelete table inet "+standingTable)
		return errors.Join(err, clearPods(context.Background(), tools))
	})
	if err := errors.Join(r.makeTable(ctx, d), makePods(ctx, tools, d.Rules/rulesOfPod)); err != nil {
		return err
	}
	before, err := listStanding(ctx, tools)
	if err != nil {
		return err
	}
	r.start(d)
	flushes := r.flushes.Load()
	d.stops = append(d.stops, func() error {
		after, err := listStanding(context.Background(), tools)
		if err == nil && after != before && r.flushes.Load() == flushes {
			r.RecordAs(raw.Record{Step: d.step, Fault: d.name, Invariant: "I7", Error: "the table or the chains of another program changed"}, raw.Violation, 1)
		}
		return err
	})
	return nil
}

// makeTable makes the foreign table of nftables.
func (r *Faults) makeTable(ctx context.Context, d *activeFault) error {
	if _, err := nft(ctx, fmt.Sprintf("add table inet %s\nadd map inet %s large { type ipv4_addr . inet_service : mark; }", standingTable, standingTable)); err != nil {
		return err
	}
	for from := 0; from < d.Elements; from += elementsAtOnce {
		var b strings.Builder
		for i := from; i < min(from+elementsAtOnce, d.Elements); i++ {
			fmt.Fprintf(&b, "10.%d.%d.%d . %d : %d, ", i>>16&255, i>>8&255, i&255, 1+i>>24, i)
		}
		if _, err := nft(ctx, fmt.Sprintf("add element inet %s large { %s }", standingTable, b.String())); err != nil {
			return err
		}
	}
	var refused []string
	for _, one := range newSets {
		kind, rest, _ := strings.Cut(one.declaration, " ")
		if _, err := nft(ctx, fmt.Sprintf("add %s inet %s %s", kind, standingTable, rest)); err != nil {
			refused = append(refused, one.what)
		}
	}
	if r.note(d, "%d of %d newer sets", len(newSets)-len(refused), len(newSets)); len(refused) > 0 {
		r.note(d, "this kernel or nft does not take %s", strings.Join(refused, ", "))
	}
	return nil
}

// makePods makes the chains of pods. Their addresses are of the ranges for benchmarks (RFC 2544, RFC 5180): no pod of the
// lab has them.
func makePods(ctx context.Context, tools iptablesOf, pods int) error {
	pod, client := "198.18.%d.%d/32", "198.19.%d.0/24"
	if tools.family == corev1.IPv6Protocol {
		pod, client = "2001:2::%x:%x/128", "2001:2:0:%x::/64"
	}
	for from := 0; from < pods; from += podsAtOnce {
		var chains, rules strings.Builder
		if from == 0 {
			fmt.Fprintf(&chains, ":%s - [0:0]\n", standingPods)
			fmt.Fprintf(&rules, "-A FORWARD -j %s\n", standingPods)
		}
		for n := from; n < min(from+podsAtOnce, pods); n++ {
			fmt.Fprintf(&chains, ":%s%d - [0:0]\n", standingPod, n)
			fmt.Fprintf(&rules, "-A %s -d "+pod+" -j %s%d\n", standingPods, n>>8&255, n&255, standingPod, n)
			for i := range rulesOfPod - 1 {
				fmt.Fprintf(&rules, "-A %s%d -s "+client+" -p tcp -m tcp --dport %d -j ACCEPT\n", standingPod, n, i, 8000+i)
			}
		}
		if _, err := tools.run(ctx, "restore", strings.NewReader("*filter\n"+chains.String()+rules.String()+"COMMIT\n"), "--noflush"); err != nil {
			return err
		}
	}
	return nil
}

// podsOf counts the rules of the foreign chains.
func podsOf(tools iptablesOf) (map[string]int, error) {
	tally, err := kernel.Tally(string(tools.variant), tools.family, "filter")
	maps.DeleteFunc(tally, func(chain string, _ int) bool { return !strings.HasPrefix(chain, standingPod) && chain != standingPods })
	return tally, err
}

func clearPods(ctx context.Context, tools iptablesOf) error {
	left, err := podsOf(tools)
	if err != nil || len(left) == 0 {
		return err // there were none, or they were flushed
	}
	script := fmt.Sprintf("-D FORWARD -j %s\n-F %s\n", standingPods, standingPods)
	for chains := range slices.Chunk(slices.Sorted(maps.Keys(left)), podsAtOnce) { // the dispatch chain comes last
		for _, chain := range chains {
			script += fmt.Sprintf("-F %s\n-X %s\n", chain, chain)
		}
		if _, err := tools.run(ctx, "restore", strings.NewReader("*filter\n"+script+"COMMIT\n"), "--noflush"); err != nil {
			return err
		}
		script = ""
	}
	return nil
}

// mostLists bounds the lists until two agree.
const mostLists = 20

var partsOfList = regexp.MustCompile(`\s*[\n,{}]\s*`)

// listStanding returns what stand made, without the order of elements. A list of a large map that the kernel still resizes may
// lack some and repeat others, so two lists in a row must agree.
func listStanding(ctx context.Context, tools iptablesOf) (string, error) {
	last := ""
	for range mostLists {
		text, err := nft(ctx, "-s", "list", "table", "inet", standingTable)
		pods, err2 := podsOf(tools)
		if err = errors.Join(err, err2); err != nil {
			return "", err
		}
		parts := partsOfList.Split(text, -1)
		slices.Sort(parts)
		list := fmt.Sprint(pods, slices.Compact(parts))
		if list == last {
			return list, nil
		}
		last = list
	}
	return "", fmt.Errorf("table %s: nft listed it %d times, each time differently: is another program changing it?", standingTable, mostLists)
}

// ownNft finds this machine's nft, even if the subject has that of another system.
func ownNft() (string, error) {
	if path, err := exec.LookPath("nft"); err == nil {
		return path, nil
	}
	return iptables.FindBinary("nft")
}

// nft runs this machine's nft, as another program does.
func nft(ctx context.Context, args ...string) (string, error) {
	if err := netns.Guard(); err != nil {
		return "", err
	}
	path, err := ownNft()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, path, args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("nft %.60s: %w: %.300s", strings.Join(args, " "), err, out)
	}
	return string(out), err
}
