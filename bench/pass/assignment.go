package pass

import (
	"fmt"
	"os/exec"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/upstream"
	"synclab/scenarios"
	"synclab/sim"
)

// Assignment is the work of a worker.
type Assignment struct {
	Scenario    scenarios.Scenario
	Params      map[string]string
	Subject     string
	Rep         int
	Turn        int    // of the subject among those of this repetition, from 1
	After       string // the subject that ran before it; empty: none
	Objects     *sim.Objects
	ProxyConfig *v1alpha1.KubeProxyConfiguration
	Dump        bool
	Feed        string
	Tools       Tools
	ExecConfig  string
	ExecEnv     []string
	MaxMemory   uint64
	ProxyArgs   []string
	Command     string // that repeats the run
	// ClusterIPsOnly: a subject of the run serves no other addresses, so flows to all subjects leave them out.
	ClusterIPsOnly bool
	// ProfileFile is the name of the profile to make of this repetition, in the run's folder; empty: none.
	ProfileFile string
	// Enough ends the repetition after the step in which one of these bounds is exceeded.
	Enough []Bound
	// Live: the Objects, and their changes, follow on stdin.
	Live bool
}

// Tools are the programs that a run needs besides this one. They are found or built before a namespace is entered:
// inside, there is no network, and HOME may differ.
type Tools struct {
	Programs map[string]Program // of subjects, by subject.Spec.Program; none: this program, or an exec subject's command
	Sockets  string             // path of Cilium's programs for sockets
	Shim     string             // path; empty with FeedInformers
	// Digests are those of the programs when the run began, by path, or by name on PATH. It says so in run.json.
	Digests map[string]string
}

// Note takes the digest of a program.
func (t *Tools) Note(program string) (digest string, err error) {
	path := program
	if !strings.Contains(program, "/") {
		if path, err = exec.LookPath(program); err != nil {
			return "", err
		}
	}
	if digest, err = upstream.Digest(path); err != nil {
		return "", err
	}
	if t.Digests == nil {
		t.Digests = map[string]string{}
	}
	t.Digests[program] = digest
	return digest, nil
}

// Check returns an error if a program is not the one that the run began with. Each start calls it: another build, or
// another run, may have replaced the file.
func (t Tools) Check(program string) error {
	want, noted := t.Digests[program]
	if !noted {
		return nil
	}
	have, err := (&Tools{}).Note(program)
	if err == nil && have != want {
		err = fmt.Errorf("%s has changed since the run began (%s, then %s): what was measured until now is of the earlier program; repeat the run", program, want, have)
	}
	return err
}

// Program is a program that was built or found.
type Program struct {
	Path    string
	Version string // as it reports it
}
