package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"synclab/bench/machine"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/upstream"
	"synclab/reports/capacity/page"
	"synclab/reports/model"
)

// modelFlags choose the cost model of a command.
type modelFlags struct {
	path string
	// elsewhere accepts a model of another kernel, processor or tool.
	elsewhere bool
	// kubeProxy is the kube-proxy version to answer for. Empty: whichever was calibrated.
	kubeProxy string
}

func (f *modelFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.path, "model", "", "`folder` of the calibration to use, or its "+model.File+" (default: the newest in "+raw.RunsFolder+"/ that was made on this machine and has the subjects)")
	flags.BoolVar(&f.elsewhere, "other-machine", false, "also accept a calibration of another kernel, processor or version of the tools: the answer is then for that machine")
	if err := cmd.MarkFlagDirname("model"); err != nil {
		panic(err)
	}
}

// load reads the model for subjects (none: all that it has) and prints remarks on it. It returns the model's folder. It
// refuses a model from another machine unless --other-machine is given.
func (f *modelFlags) load(ctx context.Context, s streams, subjects []string) (m *model.Model, dir string, err error) {
	here := model.Here{Versions: machine.DetectVersions(ctx), Machine: machine.DetectMachine(), Elsewhere: f.elsewhere}
	here.Versions.KubeProxy = f.kubeProxy
	for _, text := range subjects {
		about, err := subject.Parse(text)
		if err != nil {
			return nil, "", badInput(err)
		}
		here.Subjects = append(here.Subjects, about.Name) // for exec:NAME=COMMAND, records have only the name
	}
	path := f.path
	if path == "" {
		if path, err = newestModel(raw.RunsFolder, here); err != nil {
			return nil, "", badInput(err)
		}
		fmt.Fprintf(s.err, "cost model: %s\n", path)
	}
	m, remarks, err := model.Load(path, here)
	if err != nil {
		return nil, "", badInput(err)
	}
	if v := m.Versions.KubeProxy; v != "" && v != upstream.Pinned && f.kubeProxy == "" {
		remarks = append(remarks, fmt.Sprintf("it is for kube-proxy %s; without --kube-proxy-version the lab runs %s", v, upstream.Pinned))
	}
	if m.Status != "" && m.Status != raw.StatusComplete {
		remarks = append(remarks, fmt.Sprintf("its calibration is %s: it has only the measurements until then", m.Status))
	}
	for _, remark := range remarks {
		fmt.Fprintln(s.err, "cost model:", remark)
	}
	if filepath.Base(path) == model.File {
		path = filepath.Dir(path)
	}
	return m, path, nil
}

// errNoCalibration: no calibration is valid for this machine and these subjects.
var errNoCalibration = errors.New("no calibration")

// newestModel returns the folder in root of the newest calibration that is valid here, if possible one that was not
// interrupted. If none is valid and here.Elsewhere is set, it returns the newest one that has the subjects.
func newestModel(root string, here model.Here) (string, error) {
	files, err := filepath.Glob(filepath.Join(root, "*", model.File))
	if err != nil {
		return "", err
	}
	type found struct {
		dir  string
		made int64
	}
	var all []found
	for _, file := range files {
		if stat, err := os.Stat(file); err == nil && !page.HasAnswer(filepath.Dir(file)) { // skip a plan's copy
			all = append(all, found{filepath.Dir(file), stat.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(b.made, a.made) })
	fits := here
	fits.Elsewhere = false
	var refused []error
	elsewhere, unfinished := "", ""
	for _, f := range all {
		m, _, err := model.Load(f.dir, fits)
		switch {
		case err == nil && (m.Status == "" || m.Status == raw.StatusComplete):
			return f.dir, nil
		case err == nil:
			unfinished = cmp.Or(unfinished, f.dir)
			continue
		}
		var mismatch *model.MismatchError
		if errors.As(err, &mismatch) && elsewhere == "" {
			elsewhere = f.dir
		}
		refused = append(refused, err)
	}
	if unfinished != "" {
		return unfinished, nil
	}
	if here.Elsewhere && elsewhere != "" {
		return elsewhere, nil
	}
	command := "synclab calibrate"
	if len(here.Subjects) > 0 {
		command += " --subjects " + strings.Join(here.Subjects, ",")
	}
	if len(refused) > 0 {
		return "", fmt.Errorf("%w in %s/ is valid here: make one with `%s`, or name one with --model\n%w", errNoCalibration, root, command, errors.Join(refused...))
	}
	return "", fmt.Errorf("%w in %s/ yet: make one with `%s`, or name one with --model", errNoCalibration, root, command)
}
