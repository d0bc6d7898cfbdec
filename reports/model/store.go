package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"synclab/bench"
	"synclab/bench/outfile"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// File is the name of a model in its run's folder.
const File = "model.json"

// Write puts the model into a run's folder.
func (m *Model) Write(dir string) error {
	for _, s := range m.Subjects {
		for i := range s.Terms {
			if math.IsInf(s.Terms[i].Score, 0) || math.IsNaN(s.Terms[i].Score) {
				return fmt.Errorf("cost model: %s, %s: the fit failed", s.Name, s.Terms[i].Quantity)
			}
		}
	}
	b, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return fmt.Errorf("cost model: %w", err)
	}
	if err := outfile.Write(filepath.Join(dir, File), append(b, '\n'), 0o644); err != nil {
		return fmt.Errorf("cost model: %w", err)
	}
	return nil
}

// Here is where a model shall be used, and for what.
type Here struct {
	Versions bench.Versions // KubeProxy may be empty: not known yet
	Machine  bench.Machine
	Subjects []string // empty: all that the model has
	// Elsewhere takes a model of another machine, kernel or version all the same.
	Elsewhere bool
}

// MismatchError says what differs between where a model was made and where it shall be used.
type MismatchError struct {
	Path    string
	Differs []string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("cost model %s was calibrated elsewhere: %s; calibrate here, or allow it explicitly (--other-machine)", e.Path, strings.Join(e.Differs, "; "))
}

// Load reads model.json, or that of a run's folder. A model of another kernel, processor or tool is a *MismatchError, unless
// here.Elsewhere; what differs then, and the version of synclab where it does, are remarks. A subject that the model does
// not have is an error either way.
func Load(path string, here Here) (m *Model, remarks []string, err error) {
	if at, err := os.Stat(path); err == nil && at.IsDir() {
		path = filepath.Join(path, File)
	}
	b, err := outfile.Read(path)
	if err != nil {
		return nil, nil, fmt.Errorf("cost model: %w", err)
	}
	m = &Model{}
	if err := json.Unmarshal(b, m); err != nil {
		return nil, nil, fmt.Errorf("cost model %s: %w", path, err)
	}
	if len(m.Subjects) == 0 || slices.Contains(m.Subjects, nil) || m.Confidence <= 0 || m.Confidence >= 1 {
		return nil, nil, fmt.Errorf("cost model %s: %w", path, errors.New("it has no subjects, or no confidence"))
	}
	for _, s := range m.Subjects {
		for i := range s.Terms {
			if !s.Terms[i].complete() {
				return nil, nil, fmt.Errorf("cost model %s: %s: the law of %s has other parameters than its form: calibrate again", path, s.Name, s.Terms[i].Quantity)
			}
		}
		s.confidence, s.today = m.Confidence, m.Today
	}
	if len(here.Subjects) == 0 {
		for _, s := range m.Subjects {
			here.Subjects = append(here.Subjects, s.Name)
		}
	}
	differs, remarks, err := m.differs(here)
	switch {
	case err != nil:
		return nil, nil, err
	case len(differs) > 0 && !here.Elsewhere:
		return nil, nil, &MismatchError{Path: path, Differs: differs}
	}
	return m, append(differs, remarks...), nil
}

// complete is true if each list of parameters has as many as its form.
func (t *Term) complete() bool {
	fits := func(f Form, params []float64) bool { return len(params) == f.params() }
	for _, draw := range t.Draws {
		if !fits(t.Form, draw) {
			return false
		}
	}
	for _, r := range t.Rivals {
		if !fits(r.Form, r.Params) {
			return false
		}
	}
	return t.Form.State == "sum" || fits(t.Form, t.Params)
}

func (m *Model) differs(here Here) (differs, remarks []string, err error) {
	seen := map[string]bool{}
	compare := func(what, then, now string) {
		if then != now && !seen[what] {
			seen[what] = true
			differs = append(differs, fmt.Sprintf("%s is %s, was %s", what, orNone(now), orNone(then)))
		}
	}
	compare("kernel", m.Versions.Kernel, here.Versions.Kernel)
	compare("CPU", m.Machine.CPU, here.Machine.CPU)
	compare("number of CPUs", fmt.Sprint(m.Machine.CPUs), fmt.Sprint(here.Machine.CPUs))
	own := false
	for _, name := range here.Subjects {
		s, err := m.Subject(name)
		if err != nil {
			return nil, nil, err
		}
		about, err := bench.ParseSubject(name)
		if err != nil {
			continue // a command of the user's, whose version nobody knows
		}
		compare("layout of "+name, s.Layout, string(about.Layout))
		own = own || about.Proxier == bench.Synclab
		if about.Proxier == bench.KubeProxy && here.Versions.KubeProxy != "" {
			compare("kube-proxy", m.Versions.KubeProxy, here.Versions.KubeProxy)
		}
		switch {
		case about.Backend == proxier.Iptables && about.Variant == iptables.Legacy:
			compare("iptables-legacy", m.Versions.IPTablesLegacy, here.Versions.IPTablesLegacy)
		case about.Backend == proxier.Iptables:
			compare("iptables-nft", m.Versions.IPTablesNft, here.Versions.IPTablesNft)
		case about.Backend == proxier.Nftables && about.Proxier != bench.Synclab:
			compare("nft", m.Versions.Nft, here.Versions.Nft)
		}
	}
	if own && m.Versions.Synclab != here.Versions.Synclab {
		remarks = append(remarks, fmt.Sprintf("synclab is %s, was %s: its own subjects may cost otherwise now", orNone(here.Versions.Synclab), orNone(m.Versions.Synclab)))
	}
	return differs, remarks, nil
}

func orNone(s string) string {
	if s == "" {
		return "not there"
	}
	return fmt.Sprintf("%q", s)
}
