package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/traffic/flow"
	"synclab/scenarios"
)

// cells returns the cells of the run: the scenario's, on each kernel, and with and without profiles. left has remarks on
// steps that the given objects do not allow.
func (o *ExecuteOptions) cells() (cells []scenarios.Cell, left []string, err error) {
	scenario := *o.Scenario
	if o.Objects != nil {
		scenario, left = withoutSizes(scenario)
	}
	if cells, err = scenario.Cells(); err != nil {
		return nil, nil, err
	}
	authored := slices.Clone(cells)
	for i := range cells {
		if o.Objects == nil {
			break
		}
		if i > 0 && reflect.DeepEqual(authored[i].Scenario.Steps, authored[0].Scenario.Steps) && authored[i].Scenario.Seed == authored[0].Scenario.Seed {
			cells[i].Scenario.Steps = cells[0].Scenario.Steps // planning a large cluster takes seconds
			continue
		}
		remarks, err := fitSteps(&cells[i].Scenario, o.Objects, slices.ContainsFunc(o.running, flow.ShownByPackets))
		if err != nil {
			return nil, nil, err
		}
		for _, remark := range remarks {
			if !slices.Contains(left, remark) {
				left = append(left, remark)
			}
		}
	}
	if o.hasGuests() {
		cells = times(cells, raw.KernelField, o.Kernels)
	}
	switch {
	case o.Profile && o.OnlyProfiled:
		cells = times(cells, raw.ProfileField, []string{raw.ProfileOn})
	case o.Profile:
		cells = times(cells, raw.ProfileField, []string{raw.ProfileOff, raw.ProfileOn})
		for i := range cells {
			if cells[i].Params[raw.ProfileField] == raw.ProfileOff {
				cells[i].Once = o.Subjects // enough to see what samples cost
			}
		}
	}
	return cells, left, nil
}

// times returns each cell with each value of a field.
func times(cells []scenarios.Cell, field string, values []string) []scenarios.Cell {
	var all []scenarios.Cell
	for _, cell := range cells {
		for _, value := range values {
			with := cell
			with.Params = map[string]string{field: value}
			maps.Copy(with.Params, cell.Params)
			all = append(all, with)
		}
	}
	return all
}

// hasGuests reports whether the run uses a kernel besides the machine's own.
func (o *ExecuteOptions) hasGuests() bool {
	return slices.ContainsFunc(o.Kernels, func(name string) bool { return name != raw.HostKernel })
}

// checkKernels returns an error if the machine's kernel lacks what a subject needs, and the run uses that kernel.
func (o *ExecuteOptions) checkKernels() error {
	if len(o.Kernels) > 0 && !slices.Contains(o.Kernels, raw.HostKernel) {
		return nil
	}
	for _, s := range o.running {
		err := s.CheckKernel()
		switch {
		case err == nil:
			continue
		case s.Carrier != subject.VirtualServers: // another kernel helps only with IPVS
		case o.plans:
			err = fmt.Errorf("%w, or leave the subject out, since a guest's times would not predict a node's", err)
		default:
			err = fmt.Errorf("%w, or measure on another kernel (--kernel 6.12)", err)
		}
		return fmt.Errorf("subject %s: %w", s.Name, err)
	}
	return nil
}

// prepareKernels finds or builds the kernels, and notes their releases.
func (o *ExecuteOptions) prepareKernels(ctx context.Context, run *raw.Run) error {
	if !o.hasGuests() {
		return nil
	}
	if o.Live != nil {
		return fmt.Errorf("a followed cluster needs the machine's own kernel: leave --kernel out, or use synclab capture and -f")
	}
	o.guests, run.Kernels = map[string]string{}, map[string]string{}
	for _, name := range o.Kernels {
		if name == raw.HostKernel {
			run.Kernels[name] = run.Versions.Kernel
			continue
		}
		path, release, err := upstream.Linux(ctx, upstream.LinuxOptions{Version: name, Progress: func(text string) {
			o.Progress(Progress{Stage: "prepare", Note: "kernel " + name + ": " + text})
		}})
		if err != nil {
			return err
		}
		o.guests[name], run.Kernels[name] = path, release
		if err := o.noteDigest(run, "kernel "+name, path); err != nil {
			return err
		}
	}
	return nil
}

// startWorker runs a worker on the cell's kernel. The messages of a guest go to a file of the run.
func (o *ExecuteOptions) startWorker(ctx context.Context, w *raw.RunWriter, p slot, stdin io.Reader, stdout io.Writer) error {
	name := p.cell.Params[raw.KernelField]
	if kernel := o.guests[name]; kernel != "" {
		if err := o.tools.Check(kernel); err != nil {
			return err
		}
		log, err := w.KernelLog(fmt.Sprintf("kernel %s, %s, %s, repetition %d", name, o.cellName(p.cell), p.subject, p.rep))
		if err != nil {
			return err
		}
		err = netns.Boot(ctx, kernel, stdin, stdout, o.Stderr, log, nil, o.WorkerArgs...)
		return errors.Join(err, log.Close())
	}
	return netns.Reexec(ctx, stdin, stdout, o.Stderr, nil, o.WorkerArgs...)
}
