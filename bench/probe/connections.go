package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/raw"
	"synclab/bench/traffic"
	"synclab/scenarios"
)

// purposeConnections is the random stream for the order of turns.
const purposeConnections = 5

// connectionTurn is how long connections go to one destination before another one has its turn. Then conntrack forgets them:
// it keeps a connection for 10 s after its reset, and its table is bounded. bulkTurns of the turns are followed by one in bulk.
const (
	connectionTurn = 250 * time.Millisecond
	bulkTurns      = 4
)

// Connect measures connections through Services at positions from first to last in equal steps, and straight to an endpoint.
// Destinations take turns in a random order, so that drift of the machine affects all alike. Each turn has one value of each
// metric.
func (r *Probes) Connect(ctx context.Context, c *scenarios.Connections, name string) error {
	r.Messages.Stage(name, 0, 0)
	if err := r.Flows.StartPods(ctx); err != nil {
		return err
	}
	for _, family := range r.Families {
		targets, err := r.flowTargets(family, c.Services, corev1.ProtocolTCP)
		if err != nil {
			return err
		}
		random := r.Random(purposeConnections)
		for turn := range max(1, int(c.For/connectionTurn)) {
			for _, i := range random.Perm(len(targets)) {
				o := traffic.Loop{To: targets[i].addr, Clients: c.Clients, For: min(c.For, connectionTurn)}
				err := r.connect(ctx, family, &targets[i], o)
				if o.Clients, o.Bulk = 1, true; err == nil && turn%bulkTurns == 0 {
					err = r.connect(ctx, family, &targets[i], o)
				}
				if err != nil {
					return fmt.Errorf("connections %s: %w", family, err)
				}
			}
		}
	}
	return nil
}

// connect makes one turn.
func (r *Probes) connect(ctx context.Context, family corev1.IPFamily, t *flowTarget, o traffic.Loop) error {
	done, err := r.Flows.Loop(family, o)
	if err := cmp.Or(ctx.Err(), errors.Join(err, forgetFlows())); err != nil {
		return err
	}
	rec := raw.Record{Family: string(family), Protocol: string(corev1.ProtocolTCP), Position: &t.position}
	if t.position == 0 {
		rec.Position, rec.Target = nil, raw.TargetEndpoint
	}
	if o.Bulk {
		r.RecordAs(rec, raw.Throughput, float64(done.Bytes)/done.Took.Seconds())
		return nil
	}
	r.RecordAs(rec, raw.ConnectionsPerSecond, float64(done.Connections)/done.Took.Seconds())
	r.RecordAs(rec, raw.ConnectionCPU, done.CPU.Seconds()/float64(done.Connections))
	return nil
}
