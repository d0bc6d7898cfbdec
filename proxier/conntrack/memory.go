package conntrack

import (
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// Memory is a conntrack table without a kernel, for simulated nodes. Its zero value is empty and ready. It is safe for
// concurrent use.
type Memory struct {
	mu    sync.Mutex
	flows []Flow
	err   error
}

// Add puts flows into the table.
func (m *Memory) Add(flows ...Flow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.flows = append(m.flows, flows...)
}

// Flows returns all flows in the order in which they were added.
func (m *Memory) Flows() []Flow {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.flows)
}

// Fail makes DeleteUDP do nothing and return err, until Fail(nil).
func (m *Memory) Fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.err = err
}

// DeleteUDP implements Table.
func (m *Memory) DeleteUDP(ctx context.Context, family corev1.IPFamily, stale func(Flow) bool) (Pass, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return Pass{}, m.err
	}
	if err := ctx.Err(); err != nil {
		return Pass{}, err
	}
	var pass Pass
	m.flows = slices.DeleteFunc(m.flows, func(f Flow) bool {
		if f.Dst.Addr().Is4() != (family == corev1.IPv4Protocol) {
			return false
		}
		pass.Visited++
		if !stale(f) {
			return false
		}
		pass.Deleted++
		return true
	})
	return pass, nil
}
