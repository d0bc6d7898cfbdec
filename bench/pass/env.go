package pass

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/nftables"
	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/shim"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/internal/inet"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/world"
)

// Env is what all parts of a repetition share. Its fields are set before the first step; node and loaded by the first
// step create. Only layout, followed and step change later, and with step migrate the subject's About and Layout.
type Env struct {
	Assignment
	Lab      *netns.Lab
	Messages *MessageWriter
	Clock    clock.WithTicker
	Started  time.Time
	Events   Events
	Families []corev1.IPFamily // of the scenario; only these are measured
	Served   []corev1.IPFamily // by every subject that is a separate process
	Shim     *shim.Shim        // in front of the tools of a separate subject process
	Config   *v1alpha1.KubeProxyConfiguration
	World    *world.World
	Cluster  *api.Cluster
	Loaded   *sim.Objects // the objects when the subject started first
	Node     []netip.Addr // all addresses on the node's device, the main one of each family first
	NodeIPs  []netip.Addr // its main addresses, at most one per family
	About    subject.Spec
	Layout   iptables.Layout // of the current or next subject; only steps read it
	Followed bool            // a live cluster's changes were applied: world and cluster differ
	Fail     context.CancelCauseFunc
	Step     atomic.Pointer[string]
	enough   enough
}

// UpTime is the longest wait for a subject to come up before changes begin.
const UpTime = 30 * time.Second

func (e *Env) Random(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(e.Scenario.Seed, purpose<<32|uint64(e.Rep)))
}

// Record adds the fields that all of the repetition share, and sends the record.
func (e *Env) Record(rec raw.Record) {
	row := rec.Metric.Row()
	if row.Unit != "" {
		rec.Unit = row.Unit
	}
	rec.Scenario, rec.Subject, rec.Params, rec.Rep = e.Scenario.Name, e.Subject, e.Params, e.Rep
	if e.About.Name != "" && !row.Journey { // only the watcher, the subject's readers and steps record these
		rec.Subject = e.About.Name
	}
	rec.Services, rec.Endpoints = e.Scenario.Shape.Services, e.Scenario.Shape.Endpoints.Mean()
	if e.Objects != nil {
		rec.Services, rec.Endpoints = sizeOf(e.Objects)
	}
	if rec.At == 0 {
		rec.At = e.Clock.Since(e.Started).Seconds()
	}
	if step := e.Step.Load(); step != nil && rec.Step == "" {
		rec.Step = *step
	}
	e.collect(&rec)
	e.Messages.Send(Message{Record: &rec})
}

// RecordAs records a value of a metric, with the unit that the table of metrics says.
func (e *Env) RecordAs(rec raw.Record, metric raw.Metric, value float64) {
	rec.Metric, rec.Value = metric, value
	e.Record(rec)
}

// Settings returns the settings of the subject's mode. A subject of an unknown mode has those of the configuration's.
func (e *Env) Settings() config.Settings {
	return config.SettingsOf(e.Config, cmp.Or(v1alpha1.ProxyMode(e.About.Backend), e.Config.Mode))
}

// SameForAll returns the configuration with the settings of the subject's mode in every section: kube-proxy's modes are
// checked by the rules of layout classic, which reads section iptables.
func (e *Env) SameForAll() *v1alpha1.KubeProxyConfiguration {
	cfg, own := e.Config.DeepCopy(), e.Settings()
	config.Change(cfg, func(s *config.Settings) { *s = own })
	return cfg
}

// PlanNode returns the subject's node.
func (e *Env) PlanNode() plan.Node {
	objects := e.World.Objects()
	node := plan.Node{Name: NodeName(objects)}
	if len(objects.Nodes) > 0 {
		node.Zone = objects.Nodes[0].Labels[corev1.LabelTopologyZone]
	}
	return node
}

// FindNode sets the addresses of the subject's node.
func (e *Env) FindNode() {
	objects := e.World.Objects()
	if len(objects.Nodes) == 0 {
		return
	}
	other := func(addr netip.Addr) bool { return !slices.Contains(e.Families, inet.FamilyOf(addr)) }
	e.Node = slices.DeleteFunc(subject.DeviceAddresses(e.Config, objects.Nodes[0]), other)
	e.NodeIPs = slices.DeleteFunc(config.NodeIPs(e.Config, objects.Nodes[0]), other)
}

// NodeAddress returns the node's main address of a family.
func (e *Env) NodeAddress(family corev1.IPFamily) netip.Addr {
	for _, addr := range e.NodeIPs {
		if inet.FamilyOf(addr) == family {
			return addr
		}
	}
	return netip.Addr{}
}

// Addresses returns all addresses of the node, those of loopback included.
func (e *Env) Addresses() ([]netip.Addr, error) {
	return conntrack.NewKernel(vishnetns.None()).LocalAddrs(e.Families...)
}

// KernelVariant is the iptables variant of the subject's tables.
func (e *Env) KernelVariant() iptables.Variant { return cmp.Or(e.About.Variant, iptables.Legacy) }

// Current returns the subject with the layout of its current or next process. Only steps call it.
func (e *Env) Current() subject.Spec {
	s := e.About
	s.Layout = e.Layout
	return s
}

// ChangeLayout sets the layout of the next subject process, if the subject has layouts.
func (e *Env) ChangeLayout(layout string) {
	switch {
	case layout == "":
	case !e.About.Own || !e.About.Iptables():
		e.Messages.Send(Message{Note: fmt.Sprintf("layout %s: %s has no layouts", layout, e.Subject)})
	default:
		e.Layout = iptables.Layout(layout)
	}
}

// OwnNftables returns the subject's current tables in nf_tables, and a connection for more requests.
func (e *Env) OwnNftables(family corev1.IPFamily) ([]*nftables.Table, *nftables.Conn, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, nil, fmt.Errorf("%s tables of nftables: %w", family, err)
	}
	tables, err := conn.ListTablesOfFamily(subject.TableFamily(family))
	if err != nil {
		return nil, nil, fmt.Errorf("%s tables of nftables: %w", family, err)
	}
	return slices.DeleteFunc(tables, func(t *nftables.Table) bool { return !slices.Contains(e.About.Tables, t.Name) }), conn, nil
}

// Wait returns after d, or with the cause when ctx ends before.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
