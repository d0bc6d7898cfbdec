package virtualtest

import (
	"fmt"
	"time"
)

// disturbance of the informers' watches: its name, and a function that starts it.
type disturbance struct {
	what  string
	begin func(k *soak, a Action)
}

var disturbances = []disturbance{
	{"stalled", func(k *soak, _ Action) { k.cluster.Stall(true) }},
	{"Services held back", func(k *soak, _ Action) { k.cluster.HoldServices(true) }},
	{"events twice", func(k *soak, a Action) { k.cluster.Repeat(a.N) }},
	{"events change places", func(k *soak, a Action) { k.cluster.Swap(a.N) }},
	{"dropped", func(k *soak, _ Action) { k.cluster.DropWatches() }},
	{"away", func(k *soak, _ Action) { k.cluster.BeginGap() }},
}

// mostMissed is the most changes that may wait for watches: a few more would block the cluster.
const mostMissed = 100

func (k *soak) disturb(a Action) string {
	d := disturbances[a.Pick%uint64(len(disturbances))]
	k.disturbed, k.missed = true, 0
	k.watchesOK = time.Now().Add(time.Duration(a.N) * time.Second)
	d.begin(k, a)
	return fmt.Sprintf("%s for %d s", d.what, a.N)
}

// healWatches ends the disturbance of watches.
func (k *soak) healWatches() {
	k.watchesOK = time.Time{}
	k.cluster.EndGap(k.setting.Forgets)
	k.cluster.Heal()
}
