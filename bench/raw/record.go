package raw

import (
	"fmt"
	"math"
	"time"

	"synclab/scenarios"
)

// Record is one measured value: one line of records.jsonl. Nothing in it is averaged.
type Record struct {
	// At is the time of the value, in seconds since the repetition began.
	At       float64 `json:"at"`
	Scenario string  `json:"scenario"`
	Subject  string  `json:"subject"`
	// Services and Endpoints are the cell's size: the shape's Services, and the (mean) endpoints per Service.
	Services  int     `json:"services"`
	Endpoints float64 `json:"endpoints"`
	// Params are the values of the swept fields, e.g. {"proxy.minSyncPeriod": "1s"}.
	Params map[string]string `json:"params,omitempty"`
	// Rep is the repetition, from 1.
	Rep    int     `json:"rep"`
	Metric Metric  `json:"metric"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit"` // s, B, or count

	Step   string `json:"step,omitempty"`   // "2:churn": index and kind of the step during which it was taken
	Sync   int    `json:"sync,omitempty"`   // sequence number of its sync, from 1, within the repetition and family
	Kind   string `json:"kind,omitempty"`   // full or partial, of that sync; WaitsForLock or WaitsForCommit, of a writer_wait
	Family string `json:"family,omitempty"` // IPv4 or IPv6
	// Change that a time belongs to: the number of its moment in the repetition, from 1. Changes due at one time share it;
	// Service is whose endpoints changed. 0: of no change, or of a run before changes had numbers. Of an rss: how many
	// changes were made before.
	Change int    `json:"change,omitempty"`
	Table  string `json:"table,omitempty"` // nat or filter, of rules and chains
	// Position is the dispatch position of a first_packet: 1 is the first Service, -1 the miss, 0 an empty ruleset.
	Position *int `json:"position,omitempty"`
	// Target is the kind of destination of a first_packet if it is no plain cluster IP: one of scenarios.Probe.Kinds. It
	// has no Position except 0: a packet of the kind's clients in the empty ruleset, to subtract.
	Target string `json:"target,omitempty"`
	// Method of a first_packet: empty or "sendto" (UDP); MethodConnect (TCP); for flows between namespaces "handshake" (TCP SYN → SYN-ACK), "echo"
	// (UDP) and "established" (a packet of a flow that conntrack has already). ByPackets: of a change or a start that no
	// rule showed. MethodIptables, MethodNft: of a writer_wait.
	Method   string `json:"method,omitempty"`
	Protocol string `json:"protocol,omitempty"` // TCP or UDP, of a flow
	// Outcome of a flow: empty (answered by an endpoint that it may reach), refused, timeout, reset, or misrouted. For
	// new_endpoint_delay also "not yet": no answer by the end of the observation, so Value is a lower bound.
	Outcome string `json:"outcome,omitempty"`
	Service string `json:"service,omitempty"` // "namespace/name:port", of flows, endpoints and violations; "namespace/name" of a change
	// Fault that a record belongs to: the step's name and the fault, "5:fault flush nat".
	Fault     string `json:"fault,omitempty"`
	Task      string `json:"task,omitempty"`      // that the kernel named in a kernel_stall
	Invariant string `json:"invariant,omitempty"` // of a violation: I1 to I14
	Error     string `json:"error,omitempty"`     // of a sync that failed
	Bytes     int    `json:"bytes,omitempty"`     // given to the tool, of a shim_cost
	Share     int    `json:"share,omitempty"`     // percent of the Services, of a cold_start_share
	File      string `json:"file,omitempty"`      // in ProfilesFolder, of profile_samples and tool_input
	After     string `json:"after,omitempty"`     // the subject before, of a turn
	// Uncertainty, in seconds, is that of a time that was read from the kernel: Value is the upper bound, and
	// Value - Uncertainty the lower one. A reaction has it, a cold start and its shares, and a network programming latency
	// whose end only reading shows.
	Uncertainty float64 `json:"uncertainty,omitempty"`
}

// Bounds of what a record may say. They are far above what a machine can measure, and far below what makes an axis or a
// loop over repetitions endless.
const (
	mostValue  = 1e15  // bytes, seconds or a count
	leastValue = 1e-12 // smaller ones are 0: clocks count nanoseconds, and differences of floats leave less
	mostCount  = 1e9   // Services, endpoints, syncs; seconds since the repetition began
	mostReps   = 1e6
)

// check reports a value that nothing can have measured.
func (r *Record) check() error {
	within := func(v, most float64) bool { return math.Abs(v) <= most } // not if v is NaN
	if within(r.Value, leastValue) {
		r.Value = 0
	}
	switch {
	case !within(r.Value, mostValue), !within(r.Uncertainty, mostValue):
		return fmt.Errorf("metric %s: value %g, uncertainty %g: no measured value is beyond %g", r.Metric, r.Value, r.Uncertainty, mostValue)
	case !within(r.At, mostCount), !within(r.Endpoints, mostCount), !within(float64(r.Services), mostCount), !within(float64(r.Sync), mostCount), !within(float64(r.Change), mostCount),
		!within(float64(r.Bytes), mostValue), !within(float64(r.Share), 100), r.Position != nil && !within(float64(*r.Position), mostCount):
		return fmt.Errorf("metric %s: at %g s, %d Services, %g endpoints, sync %d, %d bytes, share %d: one of them is beyond what a run can have",
			r.Metric, r.At, r.Services, r.Endpoints, r.Sync, r.Bytes, r.Share)
	case r.Services < 0, r.Endpoints < 0, r.Rep < 0, r.Rep > mostReps:
		return fmt.Errorf("metric %s: %d Services, %g endpoints, repetition %d: want numbers from 0, and at most %.0f repetitions", r.Metric, r.Services, r.Endpoints, r.Rep, mostReps)
	}
	return nil
}

// MethodConnect is the Method of a first_packet that is the SYN of a connect(2), where the cluster has no UDP Services. It
// costs more than a sendto(2): values of both are never compared.
const MethodConnect = "connect"

// MethodIptables and MethodNft are the tools of a writer_wait. Each call waits for the xtables lock, or for the mutex of
// nf_tables that a namespace's commits take in turn.
const (
	MethodIptables = "iptables"
	MethodNft      = "nft"
	WaitsForLock   = "lock"
	WaitsForCommit = "commit"
	WriteFailed    = "failed" // as Outcome
)

// TargetEndpoint is the Target of connections straight to an endpoint, which no Service translates.
const TargetEndpoint = "endpoint"

// TooBusy is the Outcome of packets that had no answer at a moment when packets that bypass the rules had none either.
const TooBusy = "machine too busy"

// ByPackets is the Method of times that new flows to the Services showed, because no rules of the subject are known.
const ByPackets = "packets"

// How objects reach a subject, as in Run.Feed.
const (
	FeedInformers = "informers" // through the fake clientset's informers, in the lab's process
	FeedAPI       = "api"       // through the fake API server over HTTP; the subject is a separate process
)

// ObservedKernel is Run.Observed of runs that are measured in the kernel.
const ObservedKernel = "kernel"

// Run is run.json: what was run, and on which machine.
type Run struct {
	// Format of the folder: Format of the program that wrote it. 0: of before formats were numbered.
	Format   int        `json:"format,omitempty"`
	ID       string     `json:"id"`
	Started  time.Time  `json:"started"`
	Finished *time.Time `json:"finished,omitempty"`
	// Status is running, complete, interrupted or failed.
	Status   string             `json:"status"`
	Reason   string             `json:"reason,omitempty"`
	Command  string             `json:"command"` // the command line that repeats this run
	Scenario scenarios.Scenario `json:"scenario"`
	Subjects []string           `json:"subjects"`
	Reps     int                `json:"reps"` // with Precision: of the cell with the most
	// Precision is how narrow the interval of a ratio had to be, as a share of its value, before its cell was not
	// repeated any more; 0: a fixed number of repetitions.
	Precision float64 `json:"precision,omitempty"`
	Seed      uint64  `json:"seed"`
	// Feed is how objects reached the subjects: FeedInformers or FeedAPI. Empty: FeedInformers.
	Feed string `json:"feed,omitempty"`
	// ExecEnv are the names of the variables that exec subjects got by --exec-env.
	ExecEnv []string `json:"execEnv,omitempty"`
	// Observed is ObservedKernel: the kernel shows when changes are visible and subjects have converged. Runs with
	// FeedInformers without it rely on the subject's report: their network_programming_latency is change_synced.
	Observed string   `json:"observed,omitempty"`
	Versions Versions `json:"versions"`
	Machine  Machine  `json:"machine"`
	// Kernels are the releases of the kernels that cells ran on, by the value of KernelField. Empty: all on the machine's.
	Kernels map[string]string `json:"kernels,omitempty"`
	// Programs are the digests of the programs that were started besides Synclab's own, by the names of their subjects,
	// "shim" and "kernel VERSION", and of what single subjects have: "+config:NAME" and "+tools:NAME".
	Programs map[string]string `json:"programs,omitempty"`
	// LeftOut has a remark on each step that the given objects did not allow, or only on a smaller scale.
	LeftOut []string `json:"leftOut,omitempty"`
	// Records are the records that the run wrote until it ended; nil: it was killed, or has no Format.
	Records *Contents `json:"records,omitempty"`
	// Shard is the part of a sweep that this run is; nil: the whole sweep.
	Shard *Shard `json:"shard,omitempty"`
}

// Format is the format of run folders that this program writes. It reads that and all earlier ones, but for shards whose
// run.json lists their units.
const Format = FormatOwnChanges

// FormatOwnChanges is the first format whose repetitions each have their own changes (world.World.Repetition). Before,
// all had those of the first one.
const FormatOwnChanges = 2

// Contents says which records a file had when it was written.
type Contents struct {
	Lines  int    `json:"lines"`
	SHA256 string `json:"sha256"` // of the lines
}

// KernelField is the swept value (Record.Params) that names a cell's kernel: HostKernel, or the version of a User-mode
// Linux kernel. Cells without it ran on the machine's kernel.
const (
	KernelField = "kernel"
	HostKernel  = "host"
)

// HeapInUse is the kind of values of a heap profile that are bytes in use.
const HeapInUse = "inuse_space"

// ProfileField is the swept value that says whether a cell was measured while perf took samples: ProfileOn or ProfileOff.
// Cells without it ran without.
const (
	ProfileField = "profile"
	ProfileOn    = "on"
	ProfileOff   = "off"
)

// PlanSizeField is the swept value that names the size of a plan's cell: its number of Services.
const PlanSizeField = "plan.size"

// ProfilesFolder is the folder of a run's profiles, in the format of pprof.
const ProfilesFolder = "profiles"

// Versions of everything that affects results. Empty: missing.
type Versions struct {
	Synclab        string `json:"synclab"`
	Go             string `json:"go"`
	Kernel         string `json:"kernel"`
	IPTablesLegacy string `json:"iptablesLegacy,omitempty"`
	IPTablesNft    string `json:"iptablesNft,omitempty"`
	Nft            string `json:"nft,omitempty"`
	KubeProxy      string `json:"kubeProxy,omitempty"`
	Cilium         string `json:"cilium,omitempty"`
}

// Machine that the run used.
type Machine struct {
	OS          string `json:"os"`
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	MemoryBytes uint64 `json:"memoryBytes"`
	// UserNamespace is true if the run was not root and made a user namespace.
	UserNamespace bool `json:"userNamespace"`
}
