package fault

import (
	"context"
	"sync"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/bench/raw"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultRuleRefused, inject: (*Faults).refuse, lasts: forTime, shows: changesVisible, Planted: "refuse", FailsRestores: true, removesRules: true,
		spares:     []spare{withoutTools, {"needs the feed " + raw.FeedAPI, informed}},
		LosesFlows: "a Service whose rules are refused is left out, or keeps its old rules",
	})
}

// refuse makes each restore or nft transaction fail that contains a text, or that names one endpoint: the first new one
// of the changes that follow. These changes are random (seeded), so the endpoint is too. A subject that writes only
// changes meets the fault as well.
func (r *Faults) refuse(_ context.Context, d *activeFault) error {
	r.start(d)
	if d.Text != "" {
		lift, err := r.Shim.Refuse(d.Text)
		if err == nil {
			d.stops = append(d.stops, lift)
		}
		return err
	}
	known := map[string]bool{}
	for _, slice := range r.World.Objects().Slices {
		for _, endpoint := range slice.Endpoints {
			known[endpoint.Addresses[0]] = true
		}
	}
	lift := func() error { return nil }
	var planting sync.Mutex
	ended := false
	r.meets = func(object runtime.Object) {
		planting.Lock()
		defer planting.Unlock()
		addr := newAddress(object, known)
		if addr == "" || ended {
			return
		}
		r.meets = nil
		planted, err := r.Shim.Refuse(" "+addr+" ", " "+addr+":", "["+addr+"]:")
		if err != nil {
			r.Fail(err)
			return
		}
		lift = planted
		r.note(d, "payloads that name endpoint %s are refused", addr)
	}
	d.stops = append(d.stops, func() error {
		planting.Lock()
		defer planting.Unlock()
		ended = true
		return lift()
	})
	return nil
}

// newAddress returns the address of an endpoint that is not known yet; empty: there is none.
func newAddress(object runtime.Object, known map[string]bool) string {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return ""
	}
	for _, endpoint := range slice.Endpoints {
		if addr := endpoint.Addresses[0]; !known[addr] && (endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready) {
			return addr
		}
	}
	return ""
}
