package bench

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

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
)

// DetectVersions asks the kernel and the tools on this machine. What is not there stays empty.
func DetectVersions(ctx context.Context) Versions {
	return Versions{
		Synclab:        synclabVersion(),
		Go:             fmt.Sprintf("%s %s/%s", runtime.Version(), runtime.GOOS, runtime.GOARCH),
		Kernel:         kernelRelease(),
		IPTablesLegacy: toolVersion(ctx, iptables.Binary(iptables.Legacy, corev1.IPv4Protocol, "")),
		IPTablesNft:    toolVersion(ctx, iptables.Binary(iptables.Nft, corev1.IPv4Protocol, "")),
		Nft:            toolVersion(ctx, "nft"),
	}
}

// DetectMachine reads what the machine says of itself.
func DetectMachine() Machine {
	m := Machine{
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

// Commit is the source's, set by the Makefile when it links; go build knows it too, unless told not to ask.
var Commit string

// synclabVersion is the module's version, or the commit it was built from, marked "+dirty" when files differed.
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

// toolVersion is the first line that a tool prints for --version, such as "iptables v1.8.9 (legacy)"; empty when
// there is no such tool.
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

// field returns the value of the first line "name<sep>value" of a file; empty when there is none.
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

// memory is one line of /proc/meminfo, in bytes; 0 when it is not there.
func memory(name string) uint64 { return kilobytes(field("/proc/meminfo", name, ":")) }

func kilobytes(value string) uint64 {
	n, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
	if err != nil {
		return 0
	}
	return n << 10
}

// ReadPeakRSS returns the largest resident set of this process so far, or since ResetPeakRSS, in bytes.
func ReadPeakRSS() (uint64, error) {
	n := kilobytes(field("/proc/self/status", "VmHWM", ":"))
	if n == 0 {
		return 0, fmt.Errorf("peak RSS: no VmHWM in /proc/self/status")
	}
	return n, nil
}

// ResetPeakRSS makes ReadPeakRSS start again from what is resident now.
func ResetPeakRSS() error {
	const peak = "5"
	if err := os.WriteFile("/proc/self/clear_refs", []byte(peak), 0); err != nil {
		return fmt.Errorf("reset peak RSS: %w", err)
	}
	return nil
}

// ReadKernelMemory returns the memory that the kernel holds for itself and cannot give back, in bytes: SUnreclaim, VmallocUsed and
// Percpu of /proc/meminfo. A ruleset is in there (a legacy table is one vmalloc area with counters for each CPU,
// nf_tables rules are slab objects), and so is everything else of the whole machine: only the growth over a ruleset
// means something, on a machine that does nothing else, and to within some hundred KiB (VmallocUsed is exact, the
// others are summed up lazily).
func ReadKernelMemory() (uint64, error) {
	n := memory("SUnreclaim") + memory("VmallocUsed") + memory("Percpu")
	if n == 0 {
		return 0, fmt.Errorf("kernel memory: nothing to read in /proc/meminfo")
	}
	return n, nil
}
