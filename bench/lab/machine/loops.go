package machine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// Loop is the time of one piece of work, to compare two kernels on one machine.
type Loop struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// The sizes of the loops: some 50 ms each, on the machine's own kernel.
const (
	loopHashes    = 20_000
	loopWords     = 8 << 20 // 64 MiB of indices
	loopSteps     = 500_000
	loopCalls     = 50_000
	loopPages     = 4096 // 16 MiB
	loopProcesses = 20
	loopRules     = 4000
	loopPackets   = 3000
	loopElements  = 3000 // more need a larger socket buffer than ordinary users get

	legacyRestore = "iptables-legacy-restore"
)

// MeasureLoops times small loops of which each leans on one part of the kernel, in the calling process's own network
// namespace, which must be one of the lab's. The first loops are code that no kernel takes part in; then comes
// what every program asks a kernel for; the last ones are code of the kernel itself: netfilter's.
func MeasureLoops(ctx context.Context) ([]Loop, error) {
	_, err := netns.Enter()
	if err != nil {
		return nil, err
	}
	var loops []Loop
	add := func(name string, times int, work func()) {
		loops = append(loops, Loop{name, timed(work) / float64(times)})
	}
	block, ring, at := make([]byte, 4096), make([]uint32, loopWords), uint32(0)
	fillRing(ring)
	add("hash 4 KiB", loopHashes, func() {
		for range loopHashes {
			sum := sha256.Sum256(block)
			block[0] = sum[0]
		}
	})
	add("load from memory", loopSteps, func() {
		for range loopSteps {
			at = ring[at]
		}
	})
	block[1] = byte(at)
	add("read the clock", loopCalls, func() {
		for range loopCalls {
			_ = time.Now()
		}
	})
	add("system call", loopCalls, func() {
		for range loopCalls {
			_ = unix.Getppid()
		}
	})
	add("page fault", loopPages, func() { err = touchPages() })
	add("new process", loopProcesses, func() {
		for range loopProcesses {
			err = errors.Join(err, exec.CommandContext(ctx, "/bin/true").Run())
		}
	})
	if err != nil {
		return nil, err
	}
	rules, err := ruleLoops(ctx)
	return append(loops, rules...), err
}

// touchPages makes the kernel hand out pages one by one.
func touchPages() error {
	size := loopPages * unix.Getpagesize()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	_ = unix.Madvise(b, unix.MADV_NOHUGEPAGE) // a kernel without huge pages refuses, and is right
	for i := 0; i < size; i += unix.Getpagesize() {
		b[i] = 1
	}
	return unix.Munmap(b)
}

// ruleLoops times netfilter: packets through rules, and tools that write rules.
func ruleLoops(ctx context.Context) ([]Loop, error) {
	restore := func(rules int) (float64, error) { return tool(ctx, loopRulesText(rules), legacyRestore) }
	empty, err := restore(0)
	if err != nil {
		return nil, err
	}
	without, err := packets()
	if err != nil {
		return nil, err
	}
	full, err := restore(loopRules)
	if err != nil {
		return nil, err
	}
	if _, err := tool(ctx, []byte("*filter\n-A OUTPUT -j SYNCLAB-LOOP\nCOMMIT\n"), legacyRestore, "--noflush"); err != nil {
		return nil, err
	}
	with, err := packets()
	if err != nil {
		return nil, err
	}
	if _, err := tool(ctx, []byte("*filter\nCOMMIT\n"), legacyRestore); err != nil {
		return nil, err
	}
	elements, err := tool(ctx, elementsText(), "nft", "-f", "-")
	if err != nil {
		return nil, err
	}
	return []Loop{
		{"packet without rules", without}, {"packet crosses a rule", (with - without) / loopRules},
		{fmt.Sprintf("%s, a rule of %d", legacyRestore, loopRules), (full - empty) / loopRules},
		{fmt.Sprintf("nft -f, an element of %d", loopElements), elements / loopElements},
	}, nil
}

// tool returns the seconds that a tool needs for its input.
func tool(ctx context.Context, input []byte, name string, args ...string) (seconds float64, err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(input)
	var out []byte
	seconds = timed(func() { out, err = cmd.CombinedOutput() })
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return seconds, nil
}

// packets returns the seconds that one UDP packet to this node itself takes, without a receiver's part.
func packets() (float64, error) {
	receiver, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	defer receiver.Close()
	conn, err := net.DialUDP("udp4", nil, receiver.LocalAddr().(*net.UDPAddr))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	took := timed(func() {
		for range loopPackets {
			if _, sendErr := conn.Write([]byte{0}); sendErr != nil {
				err = sendErr
			}
		}
	})
	return took / loopPackets, err
}

// elementsText is a set with elements, in a new table.
func elementsText() []byte {
	var b strings.Builder
	b.WriteString("table ip synclab-loop\ndelete table ip synclab-loop\ntable ip synclab-loop {\n set s {\n  type ipv4_addr\n  elements = {")
	for i := range loopElements {
		fmt.Fprintf(&b, "10.%d.%d.%d,\n", i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("}\n }\n}\n")
	return []byte(b.String())
}

// LoopKernel is a kernel to time: the machine's own if Path is empty, else a kernel for User-mode Linux.
type LoopKernel struct{ Name, Path string }

// WriteLoops is the work of TimeLoops' worker: it writes what MeasureLoops returns.
func WriteLoops(ctx context.Context, w io.Writer) error {
	loops, err := MeasureLoops(ctx)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(loops)
}

// TimeLoops runs the worker named by args, which calls WriteLoops, on each kernel in turn, in so many rounds. It returns the
// loops by kernel and round.
func TimeLoops(ctx context.Context, kernels []LoopKernel, rounds int, progress io.Writer, args ...string) ([][][]Loop, error) {
	out := make([][][]Loop, len(kernels))
	for round := range rounds {
		for i, kernel := range kernels {
			fmt.Fprintf(progress, "round %d of %d: %s\n", round+1, rounds, kernel.Name)
			var text bytes.Buffer
			var err error
			if kernel.Path == "" {
				err = netns.Reexec(ctx, nil, &text, progress, nil, args...)
			} else {
				err = netns.Boot(ctx, kernel.Path, nil, &text, progress, nil, nil, args...)
			}
			if err != nil {
				return nil, fmt.Errorf("kernel %s: %w", kernel.Name, err)
			}
			var loops []Loop
			if err := json.Unmarshal(text.Bytes(), &loops); err != nil {
				return nil, fmt.Errorf("kernel %s: answer of the worker: %w", kernel.Name, err)
			}
			out[i] = append(out[i], loops)
		}
	}
	return out, nil
}

func timed(work func()) float64 {
	began := time.Now()
	work()
	return time.Since(began).Seconds()
}

// fillRing makes one cycle through all indices, each far from the previous one: their number is a power of two, the stride odd.
func fillRing(ring []uint32) {
	n := uint32(len(ring))
	for i := range n {
		ring[i] = (i*1664525 + 1013904223) & (n - 1) // a full period, by Hull and Dobell
	}
}

// loopRulesText is a table with a chain of rules, each of which matches one address.
func loopRulesText(rules int) []byte {
	var b strings.Builder
	b.WriteString("*filter\n:SYNCLAB-LOOP - [0:0]\n")
	for i := range rules {
		fmt.Fprintf(&b, "-A SYNCLAB-LOOP -d 10.%d.%d.%d/32 -p tcp -m tcp --dport 80 -j RETURN\n", i>>16&255, i>>8&255, i&255)
	}
	b.WriteString("COMMIT\n")
	return []byte(b.String())
}
