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

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier"
	"synclab/proxier/iptables"
)

// File is the file name of a model in its run's folder.
const File = "model.json"

// Write writes the model into a run's folder.
func (m *Model) Write(dir string) error {
	for _, s := range m.Subjects {
		for i := range s.Terms {
			if math.IsInf(s.Terms[i].Score, 0) || math.IsNaN(s.Terms[i].Score) {
				return fmt.Errorf("cost model: %s: the fit of %s failed", s.Name, s.Terms[i].Quantity)
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

// Here describes the machine and the subjects that a model is used for.
type Here struct {
	Versions raw.Versions // KubeProxy may be empty: not yet known
	Machine  raw.Machine
	Subjects []string // empty: all that the model has
	// Elsewhere accepts a model of another machine, kernel or version.
	Elsewhere bool
}

// MismatchError lists the differences between the machine of a calibration and this machine.
type MismatchError struct {
	Path    string
	Differs []string
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("cost model %s does not match this machine: %s; calibrate on this machine, or accept the model with --other-machine", e.Path, strings.Join(e.Differs, "; "))
}

// Load reads a model file, or model.json in a run's folder. A model of another kernel, processor or tool is a
// *MismatchError. With here.Elsewhere, each difference is a remark instead. Another version of synclab is always a
// remark. A subject that the model does not have is always an error.
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
		return nil, nil, fmt.Errorf("cost model %s: %w", path, errors.New("no subjects, or a confidence that is not between 0 and 1"))
	}
	for _, s := range m.Subjects {
		for i := range s.Terms {
			if !s.Terms[i].complete() {
				return nil, nil, fmt.Errorf("cost model %s: %s: the fit of %s has the wrong number of parameters: calibrate again", path, s.Name, s.Terms[i].Quantity)
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

// complete reports whether each list of parameters has the length that its form requires.
func (t *Term) complete() bool {
	fits := func(f Form, params []float64) bool { return len(params) == f.params() }
	for _, draw := range t.Draws {
		if !fits(t.Form, draw) {
			return false
		}
	}
	for _, r := range t.Alternatives {
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
			differs = append(differs, fmt.Sprintf("%s is %s, and was %s in the calibration", what, orNone(now), orNone(then)))
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
		about, err := subject.Parse(name)
		if err != nil {
			continue // a user's command: its version is unknown
		}
		compare("layout of "+name, s.Layout, string(about.Layout))
		own = own || about.Proxier == subject.Synclab
		if about.Proxier == subject.KubeProxy && about.Version == "" && here.Versions.KubeProxy != "" {
			compare("kube-proxy", m.Versions.KubeProxy, here.Versions.KubeProxy)
		}
		switch {
		case about.Backend == proxier.Iptables && about.Variant == iptables.Legacy:
			compare("iptables-legacy", m.Versions.IPTablesLegacy, here.Versions.IPTablesLegacy)
		case about.Backend == proxier.Iptables:
			compare("iptables-nft", m.Versions.IPTablesNft, here.Versions.IPTablesNft)
		case about.Backend == proxier.Nftables && about.Proxier != subject.Synclab:
			compare("nft", m.Versions.Nft, here.Versions.Nft)
		}
	}
	if own && m.Versions.Synclab != here.Versions.Synclab {
		remarks = append(remarks, fmt.Sprintf("synclab is %s, and was %s in the calibration: the costs of its own subjects may differ", orNone(here.Versions.Synclab), orNone(m.Versions.Synclab)))
	}
	return differs, remarks, nil
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return fmt.Sprintf("%q", s)
}
