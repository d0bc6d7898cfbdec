package comparison

import "time"

// SLOs are limits that every node must meet. Zero fields are no SLOs. Times are in seconds.
type SLOs struct {
	// FullSync is the median of full syncs. Plans do not have it: they judge what a cluster's users see.
	FullSync    float64 `json:"full_sync,omitempty"`
	Latency     float64 `json:"network_programming_latency_p99,omitempty"` // 99th percentile of network programming latency
	FirstPacket float64 `json:"first_packet_p99,omitempty"`                // 99th percentile of the first packet of a flow to the last Service
	CPU         float64 `json:"cpu,omitempty"`                             // mean CPUs of the proxier and its tools
	Memory      uint64  `json:"memory,omitempty"`                          // peak of the proxier and its largest tool together, in bytes
	Start       float64 `json:"start,omitempty"`                           // start of the process → every Service visible in the kernel
	Stall       float64 `json:"stall,omitempty"`                           // longest time that another process cannot run; no default, since a busy machine has such times too
	WriterWait  float64 `json:"writer_wait,omitempty"`                     // longest write of rules by another program while the proxier restarts; no default: nodes run different writers
}

// Kubernetes leaves the values of its own SLOs for network programming open. The defaults of latency and start are within the
// range that its users report as good.
const (
	defaultFullSync    = 1      // the default of minSyncPeriod: with longer syncs, they alone decide how often changes are installed
	defaultLatency     = 5      // at 5,000 nodes with partial syncs (KEP-3453); load tests fail at 30 s
	defaultFirstPacket = 100e-6 // small compared with a round trip within a data centre
	defaultCPU         = 0.5    // a small part of every node
	defaultMemory      = 512 << 20
	defaultStart       = 30 // when a node joins or a proxier restarts; the limit of load tests
)

// PlanSLOs are the defaults of a plan.
var PlanSLOs = SLOs{Latency: defaultLatency, FirstPacket: defaultFirstPacket, CPU: defaultCPU, Memory: defaultMemory, Start: defaultStart}

// ReportSLOs are the defaults of a report, which judges what runs of all scenarios may have.
var ReportSLOs = SLOs{FullSync: defaultFullSync, Latency: defaultLatency, FirstPacket: defaultFirstPacket}

// Duration is a time of SLOs, rounded to nanoseconds.
func Duration(seconds float64) time.Duration { return time.Duration(seconds*1e9 + 0.5) }
