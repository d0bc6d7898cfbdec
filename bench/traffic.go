package bench

import (
	"context"
	"errors"

	"synclab/scenarios"
)

// traffic begins or ends the stream of new flows.
func (r *repetition) traffic(ctx context.Context, t *scenarios.Traffic, name string) error {
	return errors.New("traffic is not there yet")
}

// traverseFlows measures new flows of a client pod, in namespaces of their own: probe method flow.
func (r *repetition) traverseFlows(ctx context.Context, p *scenarios.Probe, name string) error {
	return errors.New("probe method flow is not there yet")
}
