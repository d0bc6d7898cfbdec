package bench

import (
	"context"
	"fmt"

	"synclab/scenarios"
)

// apiFault breaks how the cluster's changes reach the subject.
func (r *repetition) apiFault(ctx context.Context, f *scenarios.Fault) error {
	return fmt.Errorf("fault %s is not there yet", f.Kind)
}
