package machine

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/raw"
	"synclab/proxier/iptables"
)

// DetectVersions reads the versions of the kernel and of the tools on this machine. What is missing stays empty.
func DetectVersions(ctx context.Context) raw.Versions {
	return raw.Versions{
		Synclab:        synclabVersion(),
		Go:             fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
		Kernel:         kernelRelease(),
		IPTablesLegacy: toolVersion(ctx, iptables.Binary(iptables.Legacy, corev1.IPv4Protocol, "")),
		IPTablesNft:    toolVersion(ctx, iptables.Binary(iptables.Nft, corev1.IPv4Protocol, "")),
		Nft:            toolVersion(ctx, "nft"),
	}
}

// DetectMachine reads the properties of the machine from the operating system.
func DetectMachine() raw.Machine {
	m := raw.Machine{
		OS:            field("/etc/os-release", "PRETTY_NAME", "="),
		CPU:           field("/proc/cpuinfo", "model name", ":"),
		CPUs:          runtime.NumCPU(),
		MemoryBytes:   memory("MemTotal"),
		UserNamespace: netns.InUserNamespace(),
	}
	if m.OS == "" {
		m.OS = runtime.GOOS
	}
	if m.CPU == "" { // not on arm64
		m.CPU = runtime.GOARCH
	}
	return m
}

// Commit is the source's commit, set by the Makefile at link time. Without it, go build's own record is used.
var Commit string

// synclabVersion is the module's version, or the commit it was built from, marked "+dirty" if files differed.
func synclabVersion() string {
	if Commit != "" {
		return Commit
	}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	revision, dirty := "", ""
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			revision = setting.Value
		case "vcs.modified":
			if setting.Value == "true" {
				dirty = "+dirty"
			}
		}
	}
	if revision != "" {
		return revision[:min(12, len(revision))] + dirty
	}
	return build.Main.Version
}

func kernelRelease() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return ""
	}
	return unix.ByteSliceToString(name.Release[:])
}

// toolVersion returns the first line that a tool prints for --version, such as "iptables v1.8.9 (legacy)"; empty if the
// tool is missing.
func toolVersion(ctx context.Context, name string) string {
	path, err := iptables.FindBinary(name)
	if err != nil {
		return ""
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// field returns the value of the first line "name<sep>value" of a file; empty if there is none.
func field(path, name, sep string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		key, value, ok := strings.Cut(lines.Text(), sep)
		if ok && strings.TrimSpace(key) == name {
			return strings.Trim(strings.TrimSpace(value), `"`)
		}
	}
	return ""
}

// memory returns one value of /proc/meminfo, in bytes; 0 if it is missing.
func memory(name string) uint64 { return kilobytes(field("/proc/meminfo", name, ":")) }

func kilobytes(value string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// OwnCPU returns the user and system time of this process so far, without its children.
func OwnCPU() time.Duration {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// ReadPeakRSS returns the largest resident set of this process so far, or since ResetPeakRSS, in bytes.
func ReadPeakRSS() (uint64, error) {
	n := kilobytes(field("/proc/self/status", "VmHWM", ":"))
	if n == 0 {
		return 0, fmt.Errorf("peak RSS: /proc/self/status has no VmHWM")
	}
	return n, nil
}

// ResetPeakRSS makes ReadPeakRSS start again from the current resident set.
func ResetPeakRSS() error {
	const peak = "5"
	if err := os.WriteFile("/proc/self/clear_refs", []byte(peak), 0); err != nil {
		return fmt.Errorf("reset peak RSS: %w", err)
	}
	return nil
}

// ReadKernelMemory returns the kernel's own memory that it cannot reclaim, in bytes: SUnreclaim, VmallocUsed and Percpu
// of /proc/meminfo. A legacy table is one vmalloc area with counters per CPU; nf_tables rules are slab objects. The
// value is of the whole machine, so only its growth over a ruleset is meaningful, on an idle machine. It is exact to
// within some hundred KiB: VmallocUsed is exact, the kernel sums up the others lazily.
func ReadKernelMemory() (uint64, error) {
	n := memory("SUnreclaim") + memory("VmallocUsed") + memory("Percpu")
	if n == 0 {
		return 0, fmt.Errorf("kernel memory: /proc/meminfo has no SUnreclaim, VmallocUsed or Percpu")
	}
	return n, nil
}

// RawClock reads CLOCK_MONOTONIC_RAW in ns. NTP does not adjust it, and the Go scheduler takes no part.
func RawClock() int64 {
	var ts unix.Timespec
	_, _, _ = unix.RawSyscall(unix.SYS_CLOCK_GETTIME, unix.CLOCK_MONOTONIC_RAW, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}
