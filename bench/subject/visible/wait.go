package visible

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/tracker"
)

// named is the most pending ports that an error names.
const named = 3

// Wait returns when nothing is pending and all VisibleChanges have been reported. Seen must not call it. If ctx ends first, the
// error names some pending ports. It is an *Unrecognised as soon as the kernel has rules that cannot be read.
func (w *Watcher) Wait(ctx context.Context) error {
	for {
		w.mu.Lock()
		none := w.none
		pending := w.pending()
		w.mu.Unlock()
		if pending == 0 {
			return w.do(func() {})
		}
		select {
		case <-none:
		case <-w.unreadable:
			return w.unrecognised
		case <-w.ended:
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", w.behind(), context.Cause(ctx))
		}
	}
}

// Quiet returns when no process has committed to the polled tables for the duration d.
func (w *Watcher) Quiet(ctx context.Context, d time.Duration) error {
	w.mu.Lock()
	w.quieters++
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.quieters--
		w.mu.Unlock()
	}()
	for {
		if err := w.do(w.step); err != nil {
			return err
		}
		w.mu.Lock()
		left := d - w.opts.Clock.Since(w.lastMoved)
		err := w.err
		w.mu.Unlock()
		if left <= 0 && err == nil {
			return nil
		}
		timer := w.opts.Clock.NewTimer(max(left, idlePeriod))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(fmt.Errorf("rules still change: %w", context.Cause(ctx)), err)
		}
	}
}

// Installed counts the subject's rules in the kernel by family, in the calling thread's namespace.
func (w *Watcher) Installed(ctx context.Context) (map[corev1.IPFamily]Installed, error) {
	all := map[corev1.IPFamily]Installed{}
	for _, family := range w.opts.Families {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		in, err := w.reader.Installed(family)
		if err != nil {
			return nil, fmt.Errorf("visible: %w", err)
		}
		all[family] = in
	}
	return all, nil
}

// do calls f on the reading goroutine.
func (w *Watcher) do(f func()) error {
	done := make(chan struct{})
	select {
	case w.asked <- func() { f(); close(done) }:
		<-done
		return nil
	case <-w.ended:
		return ErrClosed
	}
}

// behind describes the pending ports.
func (w *Watcher) behind() error {
	var errs []error
	_ = w.do(func() {
		w.mu.Lock()
		ports := slices.Clone(w.listed[:min(named, len(w.listed))])
		w.mu.Unlock()
		if look, err := w.reader.Look(); err == nil {
			for _, p := range ports {
				_, err := w.examine(look, p)
				errs = append(errs, err)
				if rule, err := look.Unrecognised(p.family, p.ServicePortName); rule != "" {
					errs = append(errs, fmt.Errorf("unrecognised rule: %s", rule))
				} else {
					errs = append(errs, err)
				}
			}
			look.Close()
		} else {
			errs = append(errs, err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, p := range ports {
			errs = append(errs, errors.New(w.describe(p)))
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if more := w.pending() - named; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more", more))
	}
	return fmt.Errorf("not visible in the kernel: %w", errors.Join(append(errs, w.err)...))
}

// describe compares a port's desired state with the kernel's.
func (w *Watcher) describe(p *port) string {
	text := fmt.Sprintf("service %s (%s, %s): ", p.ServicePortName, p.Protocol, p.family)
	if p.saw == nil {
		return text + "not read yet"
	}
	to, from := p.tail(), p.shown
	parts := []string{w.compare(p, "endpoints", to.cluster, from.cluster, p.saw.Cluster), w.compare(p, "local endpoints", to.local, from.local, p.saw.Local)}
	parts = slices.DeleteFunc(parts, func(part string) bool { return part == "" })
	if len(parts) == 0 {
		return text + "its endpoints are in the kernel, but no rule dispatches to them"
	}
	return text + strings.Join(parts, "; ")
}

// compare lists missing and unexpected endpoints; empty if there are none.
func (w *Watcher) compare(p *port, what string, to, from []*tracker.Endpoint, saw []string) string {
	text := map[string]string{} // by the reader's name
	for _, state := range p.queue {
		for _, ep := range slices.Concat(state.cluster, state.local) {
			text[w.reader.Endpoint(p.ServicePortName, ep.Text)] = ep.Text
		}
	}
	for _, ep := range from {
		text[w.reader.Endpoint(p.ServicePortName, ep.Text)] = ep.Text
	}
	var lacks, besides []string
	wanted := map[string]bool{}
	for _, ep := range to {
		name := w.reader.Endpoint(p.ServicePortName, ep.Text)
		wanted[name] = true
		if _, there := slices.BinarySearch(saw, name); !there {
			lacks = append(lacks, ep.Text)
		}
	}
	for _, name := range saw {
		if !wanted[name] {
			besides = append(besides, cmp.Or(text[name], name))
		}
	}
	if len(lacks) == 0 && len(besides) == 0 {
		return ""
	}
	line := fmt.Sprintf("kernel has %d of %d %s", len(to)-len(lacks), len(to), what)
	if len(lacks) > 0 {
		line += ", missing " + some(lacks)
	}
	if len(besides) > 0 {
		line += ", unexpected " + some(besides)
	}
	return line
}

// some returns the first few entries of a list.
func some(list []string) string {
	if more := len(list) - named; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:named], ", "), more)
	}
	return strings.Join(list, ", ")
}
