package host

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"synclab/bench/lab/process"
	"synclab/bench/lab/profile"
	"synclab/bench/lab/shim"
	"synclab/bench/lab/temporary"
	"synclab/bench/pass"
	"synclab/bench/raw"
)

// profiling samples the subject's processes, if the assignment wants it.
type profiling struct {
	recordings []*profile.Recording // one for each process of the subject
	data       *temporary.Dir       // of their samples
	mu         sync.Mutex
	windows    []profile.Window // of syncs, of every recorded family
}

// startProfiled starts the subject's process. It calls begin and lets the process pass when perf samples it.
func (r *Host) startProfiled(ctx context.Context, o process.Options, begin func()) (*process.Process, error) {
	gate, err := profile.NewGate(r.Lab.Dir)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, gate.Close) // the process may read from it later than this function ends
	o.Path, o.Args = gate.Before(o.Path, o.Args)
	p, err := process.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	number := len(r.profiling.recordings)
	sees, reason := profile.SeesKernel(r.Lab.User)
	if !sees && number == 0 {
		r.Messages.Send(pass.Message{Note: reason})
	}
	// perf follows links, and believes its files: not in the run's folder, where the subject can write.
	if r.profiling.data == nil {
		if r.profiling.data, err = temporary.New(""); err != nil {
			return nil, errors.Join(err, p.Stop(ctx))
		}
	}
	data := filepath.Join(r.profiling.data.Path, fmt.Sprintf("perf-%d.data", number))
	// The recording outlives ctx, which ends with the process.
	recording, err := profile.Start(context.WithoutCancel(ctx), profile.Options{Path: data, PID: p.PID(), Kernel: sees})
	if err != nil {
		return nil, errors.Join(err, p.Stop(ctx))
	}
	r.profiling.recordings = append(r.profiling.recordings, recording)
	begin()
	return p, gate.Open()
}

// window notes the time of a sync.
func (r *Host) window(kind string, from, to time.Time) {
	if r.ProfileFile == "" {
		return
	}
	r.profiling.mu.Lock()
	defer r.profiling.mu.Unlock()
	r.profiling.windows = append(r.profiling.windows, profile.Window{Kind: cmp.Or(kind, process.Partial), From: from, To: to})
}

// SendProfile adds up what perf recorded, and sends it to the parent. The subject has ended.
func (r *Host) SendProfile(ctx context.Context) error {
	if r.ProfileFile == "" || len(r.profiling.recordings) == 0 {
		return nil
	}
	defer r.profiling.data.Remove()
	cut := profile.Cut{Subject: r.About.Name, Shims: map[int]bool{}, Windows: r.profiling.windows}
	if cold := &r.Harness.cold; cold.seen() {
		cut.Cold = profile.Window{From: cold.began, To: cold.visible[len(cold.visible)-1]}
		r.RecordAs(raw.Record{Kind: profile.ColdStart}, raw.ProfiledSyncs, 1)
	}
	counts := map[string]int{process.Full: 0, process.Partial: 0}
	for _, w := range cut.Windows {
		counts[w.Kind]++
	}
	for kind, n := range counts {
		if n > 0 {
			r.RecordAs(raw.Record{Kind: kind}, raw.ProfiledSyncs, float64(n))
		}
	}
	calls, _, err := r.Shim.Read(0)
	if err != nil {
		return err
	}
	for _, call := range calls {
		cut.Shims[call.PID] = true
	}
	if err := r.sendInputs(calls); err != nil {
		return err
	}
	for _, recording := range r.profiling.recordings {
		cut.PIDs = append(cut.PIDs, recording.PID)
	}
	p := profile.New(cut)
	if sees, reason := profile.SeesKernel(r.Lab.User); !sees {
		p.Comment(reason)
	}
	lost := 0
	for i, recording := range r.profiling.recordings {
		r.Messages.Stage("profile", i, len(r.profiling.recordings))
		if err := recording.Stop(); err != nil {
			return err
		}
		some, err := recording.Samples(ctx, p.Add)
		if err != nil {
			return err
		}
		lost += some
	}
	content, err := p.Bytes()
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	r.Messages.Send(pass.Message{File: r.ProfileFile, Content: content})
	r.RecordAs(raw.Record{File: r.ProfileFile}, raw.ProfileSamples, float64(p.Samples))
	r.RecordAs(raw.Record{}, raw.ProfileLost, float64(lost))
	return nil
}

// KeepsInputs reports whether the inputs of tools are kept, to reproduce the slowest call. One repetition is enough.
func (r *Host) KeepsInputs() bool { return r.ProfileFile != "" && r.Rep == 1 }

// mostInputs bounds the number of inputs that a run keeps of a repetition.
const mostInputs = 20

// sendInputs sends the inputs of the first calls that wrote rules, until the slowest of them.
func (r *Host) sendInputs(calls []shim.Call) error {
	if !r.KeepsInputs() {
		return nil
	}
	calls = slices.DeleteFunc(slices.Clone(calls), func(c shim.Call) bool {
		of := c.Family()
		return !r.About.Writes(c) || c.Stdin <= 0 || c.ExitCode != 0 || of != "" && !slices.Contains(r.Families, of)
	})
	calls = calls[:min(len(calls), mostInputs)]
	if len(calls) == 0 {
		return nil
	}
	slowest := 0
	for i, c := range calls {
		if c.Duration() > calls[slowest].Duration() {
			slowest = i
		}
	}
	for i, c := range calls[:slowest+1] {
		text, err := r.Shim.Input(c)
		if err != nil {
			return err
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, err = w.Write(text)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		file := fmt.Sprintf("%s-input-%d.gz", strings.TrimSuffix(r.ProfileFile, ".pb.gz"), i+1)
		r.Messages.Send(pass.Message{File: file, Content: packed.Bytes()})
		r.RecordAs(raw.Record{File: file, Method: strings.Join(append([]string{filepath.Base(c.Real)}, c.Args...), " ")}, raw.ToolInput, c.Duration().Seconds())
	}
	return nil
}
