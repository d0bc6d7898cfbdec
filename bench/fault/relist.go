package fault

import (
	"context"
	"fmt"

	"synclab/scenarios"
	"synclab/sim"
)

func init() {
	register(Kind{Name: scenarios.FaultRelist, disturb: (*Faults).relist, lasts: atOnce, shows: changesVisible, Hides: hiddenChurns})
}

// hiddenChurns are the changes that fault relist hides from the subject: Services are deleted and created, and endpoints
// change. The last change of each kind is no deletion, so that a new list shows its version.
var hiddenChurns = []scenarios.Churn{{Kind: "services", Events: 4, Rate: 40}, {Kind: "endpoints", Events: 8, Rate: 40}}

// relist hides changes from the subject's watches. Only a new list shows them, above all the deletions.
func (r *Faults) relist(ctx context.Context, _ *activeFault) (err error) {
	w := r.apiSide()
	w.BeginGap()
	defer func() { w.EndGap(err == nil) }()
	if r.Followed { // the world has no changes that fit a followed cluster; the fault hides none
		return nil
	}
	name := *r.Step.Load()
	for _, churn := range hiddenChurns {
		if err := r.Play(ctx, name, func() (sim.Trace, error) { return r.World.Churn(churn) }); err != nil {
			return fmt.Errorf("apply the changes hidden from the subject: %w", err)
		}
	}
	return nil
}
