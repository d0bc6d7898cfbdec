package pass

import (
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/scenarios"
	"synclab/sim"
)

// Assignment is the work of a worker.
type Assignment struct {
	Scenario    scenarios.Scenario
	Params      map[string]string
	Subject     string
	Rep         int
	Objects     *sim.Objects
	ProxyConfig *v1alpha1.KubeProxyConfiguration
	Dump        bool
	Feed        string
	Tools       Tools
	ExecConfig  string
	MaxMemory   uint64
	ProxyArgs   []string
	Command     string // that repeats the run
	// ClusterIPsOnly: a subject of the run serves no other addresses, so flows to all subjects leave them out.
	ClusterIPsOnly bool
	// ProfileFile is the name of the profile to make of this repetition, in the run's folder; empty: none.
	ProfileFile string
	// Live: the Objects, and their changes, follow on stdin.
	Live bool
}

// Tools are the programs that a run needs besides this one. They are found or built before a namespace is entered:
// inside, there is no network, and HOME may differ.
type Tools struct {
	KubeProxy map[string]Program // by the version of a subject
	Cilium    Program
	Sockets   string // path of Cilium's programs for sockets
	Shim      string // path; empty with FeedInformers
}

// Program is a program that was built or found.
type Program struct {
	Path    string
	Version string // as it reports it
}
