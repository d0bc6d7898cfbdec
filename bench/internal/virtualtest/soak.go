package virtualtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/nftables"
	"synclab/sim"
	"synclab/sim/api"
)

// nodeName is the proxier's node.
const nodeName = "node-0"

// Report is the result of a soak.
type Report struct {
	Seed    uint64        `json:"seed"`
	Setting string        `json:"setting"`
	Lived   time.Duration `json:"lived_ns"` // virtual
	Changes int           `json:"changes"`
	Faults  int           `json:"faults"`
	Killed  int           `json:"killed"` // number of killed proxiers
	Calms   int           `json:"calms"`
	Looks   int           `json:"looks"`
	Packets int           `json:"packets"` // sent through the ruleset evaluator
	Full    int           `json:"full_syncs"`
	Partial int           `json:"partial_syncs"`
	Failed  int           `json:"failed_syncs"`
	// Digest of all syncs, in order, by family.
	Digest    string     `json:"digest"`
	Violation *Violation `json:"violation,omitempty"`
}

// Violation is a violated property.
type Violation struct {
	Invariant string        `json:"invariant"`
	At        time.Duration `json:"at_ns"` // virtual time since the start
	Detail    string        `json:"detail"`
	// Recent are the last Actions before it.
	Recent []string `json:"recent"`
	// Action is the number of the last Action, from 1.
	Action int `json:"action"`
}

// soak runs a proxier and its restarts. It lives in a synctest bubble.
type soak struct {
	setting Setting
	began   time.Time
	cluster *api.Cluster
	state   *state
	kernels map[corev1.IPFamily]kernel
	flows   map[corev1.IPFamily]*conntrack.Memory
	clients []*client
	addrs   []netip.Addr // the node's current addresses
	flowsOK time.Time    // until then, flows cannot be read
	// watchesOK is the end of the watches' disturbance. missed counts changes during it. disturbed: watches have been
	// disturbed since the last calm.
	watchesOK time.Time
	missed    int
	disturbed bool
	// refusing: rules have been rejected since the last calm.
	refusing bool

	proxier *proxier.Proxier
	kill    context.CancelFunc
	ended   chan error

	report Report
	recent []string
	lines  int

	mu       sync.Mutex // guards what syncs write
	digests  map[corev1.IPFamily]hash.Hash
	syncs    map[corev1.IPFamily]proxier.Sync // the last sync of each family
	failing  map[corev1.IPFamily]time.Time    // start of the current series of failed syncs
	lastFull map[corev1.IPFamily]time.Time
	refusals map[corev1.IPFamily]int
}

// player returns the Actions of a script one by one.
type player func() (a Action, ok bool, err error)

// newSoak returns a soak without a proxier. Call it in the synctest bubble in which the soak runs.
func newSoak(s Setting, first *sim.Objects) *soak {
	return &soak{
		setting: s, began: time.Now(), cluster: api.NewCluster(clock.RealClock{}), state: newState(first),
		kernels: map[corev1.IPFamily]kernel{}, flows: map[corev1.IPFamily]*conntrack.Memory{},
		report:  Report{Seed: s.Seed, Setting: s.String()},
		digests: map[corev1.IPFamily]hash.Hash{}, syncs: map[corev1.IPFamily]proxier.Sync{},
		failing: map[corev1.IPFamily]time.Time{}, lastFull: map[corev1.IPFamily]time.Time{},
		refusals: map[corev1.IPFamily]int{},
	}
}

// play runs a script. Call it in a separate synctest bubble.
func play(ctx context.Context, s Setting, first *sim.Objects, actions player) (Report, error) {
	k := newSoak(s, first)
	defer k.cluster.Stop()
	if err := k.prepare(ctx, first); err != nil {
		return k.report, err
	}
	if err := k.start(); err != nil {
		return k.report, err
	}
	defer k.stop()
	for k.report.Violation == nil && ctx.Err() == nil {
		a, ok, err := actions()
		if err != nil {
			return k.report, err
		}
		if !ok {
			break
		}
		time.Sleep(a.After)
		synctest.Wait()
		k.do(a)
		synctest.Wait()
	}
	k.finish()
	return k.report, ctx.Err()
}

func (k *soak) prepare(ctx context.Context, first *sim.Objects) error {
	for _, family := range k.setting.Families {
		if k.setting.Backend == proxier.Nftables {
			k.kernels[family] = newNftable(family, k.setting)
		} else {
			k.kernels[family] = newTables(family, k.setting)
		}
		k.flows[family] = &conntrack.Memory{}
		k.digests[family] = sha256.New()
	}
	if k.state.node == nil {
		return fmt.Errorf("seed %d: node %s is not in the cluster", k.setting.Seed, nodeName)
	}
	k.addrs = subject.DeviceAddresses(k.setting.config(), k.state.node)
	return k.cluster.Load(ctx, first)
}

// options returns the proxier's options without those of a running proxier.
func (k *soak) options() proxier.Options {
	addrs, cfg := k.addrs, k.setting.config()
	return proxier.Options{
		Config: cfg, Backend: k.setting.Backend, Variant: k.setting.Variant, Layout: k.setting.Layout,
		Batch:    60, // so most syncs of the nft variant need several batches
		Families: k.setting.Families, NodeName: nodeName, NodeIPs: config.NodeIPs(cfg, k.state.node),
		Addresses: func() ([]netip.Addr, error) { return addrs, nil },
		Machine:   proxier.Machine{RandomFully: true, BPF: k.setting.Flat},
		Policy:    k.setting.Policy,
	}
}

// start starts a proxier with the current tables.
func (k *soak) start() error {
	opts := k.options()
	opts.Addresses = func() ([]netip.Addr, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.addrs, nil
	}
	opts.Tables = func(family corev1.IPFamily) (iptables.Tables, error) { return k.kernels[family].(*tables), nil }
	opts.Model = func(family corev1.IPFamily) *nftables.Model { return k.kernels[family].(*nftable).model }
	opts.Conntrack = func(family corev1.IPFamily) (conntrack.Table, error) { return k.flows[family], nil }
	opts.OnSync = k.synced
	p, err := proxier.New(opts)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	if err := p.Watch(ctx, k.cluster.NewInformers()); err != nil {
		cancel()
		return err
	}
	done := make(chan error, 1)
	k.proxier, k.kill, k.ended = p, cancel, done
	go func() { done <- p.Run(ctx) }()
	return nil
}

// stop stops the proxier, at any point of its work.
func (k *soak) stop() {
	if k.kill == nil {
		return
	}
	k.kill()
	if err := <-k.ended; err != nil {
		k.broken(ended, fmt.Sprintf("the proxier exited with an error: %v", err))
	}
	synctest.Wait()
	k.kill = nil
	for _, c := range k.clients {
		c.orphan = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.failing)
	clear(k.refusals)
	clear(k.syncs)
	clear(k.lastFull)
}

// synced records a sync, on the goroutine that synced.
func (k *soak) synced(s proxier.Sync) {
	k.mu.Lock()
	defer k.mu.Unlock()
	fmt.Fprintf(k.digests[s.Family], "%d %s %s %d %d %d %d %d %d %v %v %d %v\n", s.Seq, s.Kind, s.Reason, s.Started.UnixNano(), s.Finished.UnixNano(),
		s.Changes, s.Events, s.Services, s.Endpoints, s.Installed, s.Sent, len(s.Refused), s.Err)
	k.syncs[s.Family] = s
	k.refusals[s.Family] = len(s.Refused)
	switch {
	case s.Err != nil:
		k.report.Failed++
		if k.failing[s.Family].IsZero() {
			k.failing[s.Family] = s.Started
		}
		return
	case s.Kind == proxier.Full:
		k.report.Full++
		k.lastFull[s.Family] = s.Started
	default:
		k.report.Partial++
	}
	delete(k.failing, s.Family)
}

// do runs an Action.
func (k *soak) do(a Action) {
	k.lines++
	note := a.String()
	if !k.watchesOK.IsZero() && time.Now().After(k.watchesOK) {
		k.healWatches()
	}
	if !k.flowsOK.IsZero() && time.Now().After(k.flowsOK) {
		k.flowsOK = time.Time{}
		k.flowsWork()
	}
	switch {
	case a.Kind == change:
		k.report.Changes++
		k.change(a)
	case a.Kind == calm:
		k.report.Calms++
		k.calm(a)
	case a.Kind == look:
		k.report.Looks++
		k.look(a)
	case a.Kind == talks:
		k.talk(a)
	default:
		if what := k.fault(a); what != "" {
			k.report.Faults++
			note += ": " + what
		}
	}
	const most = 60
	k.recent = append(k.recent, fmt.Sprintf("%v %s", time.Since(k.began).Round(time.Millisecond), note))
	k.recent = k.recent[max(0, len(k.recent)-most):]
}

func (k *soak) change(a Action) {
	c, any := k.state.apply(a.Change)
	if !any {
		return
	}
	if k.missed++; !k.watchesOK.IsZero() && k.missed > mostMissed {
		k.healWatches()
	}
	if err := k.cluster.Apply(context.Background(), c); err != nil {
		k.broken(lab, fmt.Sprintf("change of the cluster: %v", err))
	}
	k.markClients()
}

// fault injects a fault and describes it; empty if this kind of fault is impossible.
func (k *soak) fault(a Action) string {
	switch a.Kind {
	case restart:
		k.report.Killed++
		k.stop()
		time.Sleep(time.Duration(a.N)*time.Second + time.Duration(a.Pick%1e9))
		if k.report.Violation != nil {
			return ""
		}
		k.healWatches() // otherwise the new proxier could not start
		if err := k.start(); err != nil {
			k.broken(ended, fmt.Sprintf("the proxier did not restart: %v", err))
		}
		return "killed and restarted"
	case flowsFail:
		k.flowsOK = time.Now().Add(time.Duration(a.N) * time.Second)
		for _, f := range k.flows {
			f.Fail(fmt.Errorf("netlink: %w", errUnreadable))
		}
		return "flows cannot be read"
	case address:
		return k.readdress(a)
	case watches:
		return k.disturb(a)
	case refuse:
		k.refusing = true
	}
	return k.kernels[k.setting.Families[a.Family%len(k.setting.Families)]].fault(a)
}

func (k *soak) flowsWork() {
	for _, f := range k.flows {
		f.Fail(nil)
	}
}

// readdress adds addresses to the node, or removes them.
func (k *soak) readdress(a Action) string {
	rng := rand.New(rand.NewPCG(a.Pick, 0xadd))
	addrs := config.NodeIPs(k.setting.config(), k.state.node)
	for range rng.IntN(3) {
		addrs = append(addrs, netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + rng.IntN(100))}))
		addrs = append(addrs, netip.MustParseAddr(fmt.Sprintf("fd00:192:0:2::%x", 100+rng.IntN(100))))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.addrs = addrs
	return fmt.Sprint(addrs)
}

// broken records the first violated property.
func (k *soak) broken(invariant, detail string) {
	if k.report.Violation == nil {
		k.report.Violation = &Violation{Invariant: invariant, At: time.Since(k.began), Detail: detail, Action: k.lines}
	}
}

func (k *soak) finish() {
	k.stop()
	k.report.Lived = time.Since(k.began)
	if v := k.report.Violation; v != nil {
		v.Recent = k.recent
	}
	sum := sha256.New()
	for _, family := range k.setting.Families {
		sum.Write(k.digests[family].Sum(nil))
	}
	k.report.Digest = hex.EncodeToString(sum.Sum(nil)[:8])
}
