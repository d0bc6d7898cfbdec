package machine

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
	"synclab/bench/raw"
)

// The pieces of work of a pace: about 20 ms each on a machine of 2024.
const (
	paceRepeats  = 9
	pacedHashes  = 400     // of 64 KiB each
	pacedWords   = 8 << 20 // 64 MiB of indices
	pacedSteps   = 250_000
	pacedRules   = 4000
	pacedMinimum = 3 // repetitions of a median if ctx ends early
)

// MeasurePace measures the pace in about a second. Restore is 0 without a tool or without namespaces.
func MeasurePace(ctx context.Context) raw.Pace {
	var p raw.Pace
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
	block[1] = byte(at) // keeps the compiler from removing the walk
	p.CPU, p.Memory, p.Restore = middle(cpu), middle(memory), middle(restore)
	return p
}

func timed(work func()) float64 {
	began := time.Now()
	work()
	return time.Since(began).Seconds()
}

// middle returns the middle value; 0 for none.
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// pacedRing is one cycle through all n indices, each far from the previous one: n is a power of two and the stride odd.
func pacedRing(n uint32) []uint32 {
	ring := make([]uint32, n)
	for i := range n {
		ring[i] = (i*1664525 + 1013904223) & (n - 1) // a full period, by Hull and Dobell
	}
	return ring
}

// pacedPayload is a table with a chain of rules, each of which matches one address.
func pacedPayload(rules int) []byte {
	var b strings.Builder
	b.WriteString("*filter\n:SYNCLAB-PACE - [0:0]\n")
	for i := range rules {
		fmt.Fprintf(&b, "-A SYNCLAB-PACE -d 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j RETURN\n", i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String())
}
