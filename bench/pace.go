package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"synclab/bench/netns"
)

// Pace is how fast the machine is at a moment: the medians, in seconds, of the same small pieces of work each time. Two paces
// are compared piece by piece; a piece that one of them lacks is 0.
type Pace struct {
	CPU     float64 `json:"cpu"`     // hashing what fits the caches
	Memory  float64 `json:"memory"`  // following pointers through memory that does not fit them
	Restore float64 `json:"restore"` // restoring a table of rules in an empty network namespace
	// Tool that restored.
	Tool string `json:"tool,omitempty"`
}

// The work of a pace: about 20 ms each on a machine of 2024.
const (
	paceRepeats  = 9
	pacedHashes  = 400     // of 64 KiB each
	pacedWords   = 8 << 20 // 64 MiB of indices
	pacedSteps   = 250_000
	pacedRules   = 4000
	pacedMinimum = 3 // repetitions that a median is of, if ctx ends early
)

// MeasurePace takes about a second. Without a tool or without namespaces there is no Restore.
func MeasurePace(ctx context.Context) Pace {
	var p Pace
	block := make([]byte, 64<<10)
	ring := pacedRing(pacedWords)
	rules := pacedPayload(pacedRules)
	for _, tool := range []string{"iptables-legacy-restore", "iptables-nft-restore"} {
		if _, err := exec.LookPath(tool); err == nil {
			p.Tool = cmp.Or(p.Tool, tool)
		}
	}
	var cpu, memory, restore []float64
	at := uint32(0)
	for i := range paceRepeats {
		if ctx.Err() != nil && i >= pacedMinimum {
			break
		}
		cpu = append(cpu, timed(func() {
			for range pacedHashes {
				sum := sha256.Sum256(block)
				block[0] = sum[0]
			}
		}))
		memory = append(memory, timed(func() {
			for range pacedSteps {
				at = ring[at]
			}
		}))
		if p.Tool == "" {
			continue
		}
		began := time.Now()
		_, err := netns.Isolated(ctx, func(cmd *exec.Cmd) { cmd.Stdin = bytes.NewReader(rules) }, p.Tool)
		if took := time.Since(began).Seconds(); err == nil {
			restore = append(restore, took)
		}
	}
	block[1] = byte(at) // or the compiler might leave the walk out
	p.CPU, p.Memory, p.Restore = middle(cpu), middle(memory), middle(restore)
	return p
}

func timed(work func()) float64 {
	began := time.Now()
	work()
	return time.Since(began).Seconds()
}

// middle of values; 0 of none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// pacedRing is one cycle through all of n indices, each far from the one before: n is a power of two and the stride odd.
func pacedRing(n uint32) []uint32 {
	ring := make([]uint32, n)
	for i := range n {
		ring[i] = (i*1664525 + 1013904223) & (n - 1) // a full period, by Hull and Dobell
	}
	return ring
}

// pacedPayload is a table with a chain of rules that match nothing but one address each.
func pacedPayload(rules int) []byte {
	var b strings.Builder
	b.WriteString("*filter\n:SYNCLAB-PACE - [0:0]\n")
	for i := range rules {
		fmt.Fprintf(&b, "-A SYNCLAB-PACE -d 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j RETURN\n", i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String())
}
