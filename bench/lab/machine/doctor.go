package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// Status is the result of a check.
type Status string

// The states of a check.
const (
	OK     Status = "ok"
	Warn   Status = "warn"   // works with a limit that Detail names
	Fail   Status = "fail"   // something a run needs does not work
	Absent Status = "absent" // missing; runs that need it are impossible
)

// Check is one checked property of the machine.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Remedy is what to do about it; empty: nothing.
	Remedy string `json:"remedy,omitempty"`
}

// Examine checks what this machine and this user can do, by doing it. It tries rules in empty namespaces that end with
// their tool.
func Examine(ctx context.Context) []Check {
	user, err := netns.Available(ctx)
	space := examineNamespaces(user, err)
	checks := []Check{{Name: "kernel", Status: OK, Detail: kernelRelease()}, space}
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		checks = append(checks, examineVariant(ctx, variant))
	}
	checks = append(checks, examineDefault(ctx), examineNft(ctx))
	checks = append(checks, examineGo(ctx), examineCache(), examineKubeProxy(ctx, upstream.Options{CachedOnly: true}))
	checks = append(checks, examineTemporary(os.TempDir()), examineOutput("."))
	if space.Status != Fail {
		for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
			for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
				checks = append(checks, examineRules(ctx, variant, family))
			}
		}
		checks = append(checks, examineVeth(ctx))
	}
	limit, err := kernel.SendLimit()
	checks = append(checks, examineSendLimit(limit, err), examineConntrack(procConntrack), examineIPv6(procIPv6),
		examineClock(clockCost()), examineResources(DetectMachine()))
	if user {
		checks = append(checks, examineJumps(procJumps)...)
	}
	return checks
}

// Files with settings of the kernel.
const (
	procConntrack = "/proc/sys/net/netfilter/nf_conntrack_max"
	procIPv6      = "/proc/net/if_inet6"
	procJumps     = "/proc/sys/net/netfilter/nf_tables_jumps_max_netns"
)

func examineNamespaces(user bool, err error) Check {
	c := Check{Name: "namespaces", Status: OK, Detail: "as root"}
	switch {
	case errors.Is(err, netns.ErrUnavailable):
		c.Status, c.Detail = Fail, err.Error()
		c.Remedy = "run as root, or allow user namespaces as described"
	case err != nil:
		c.Status, c.Detail = Fail, fmt.Sprintf("the test failed: %v", err)
	case user:
		c.Detail = "as an ordinary user, in a user namespace"
	}
	return c
}

// examineVariant checks that the tools of a variant exist and report that variant.
func examineVariant(ctx context.Context, variant iptables.Variant) Check {
	tool := iptables.Binary(variant, corev1.IPv4Protocol, "")
	c := Check{Name: tool, Status: OK, Detail: toolVersion(ctx, tool)}
	want := map[iptables.Variant]string{iptables.Legacy: "(legacy)", iptables.Nft: "(nf_tables)"}[variant]
	switch {
	case c.Detail == "":
		c.Status, c.Detail = Absent, "not found"
		c.Remedy = "install the iptables package (in newer distributions the package iptables-legacy)"
	case !strings.Contains(c.Detail, want):
		c.Status, c.Remedy = Fail, fmt.Sprintf("%s should be the %s variant: check the alternatives of iptables", tool, want)
	}
	return c
}

// examineDefault reports the variant of the plain name iptables. The lab does not use it, but users do.
func examineDefault(ctx context.Context) Check {
	c := Check{Name: "iptables", Status: OK, Detail: toolVersion(ctx, "iptables")}
	if c.Detail == "" {
		c.Status, c.Detail, c.Remedy = Absent, "not found", "install the iptables package"
	}
	return c
}

func examineNft(ctx context.Context) Check {
	c := Check{Name: "nft", Status: OK, Detail: toolVersion(ctx, "nft")}
	if c.Detail == "" {
		c.Status, c.Detail, c.Remedy = Absent, "not found: kube-proxy/nftables needs it, synclab/nftables does not", "install the nftables package"
	}
	return c
}

// examineGo checks for Go, which builds kube-proxy.
func examineGo(ctx context.Context) Check {
	version, err := upstream.GoVersion(ctx)
	c := Check{Name: "go", Status: OK, Detail: version}
	switch {
	case err != nil && !errors.Is(err, upstream.ErrNoGo):
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "set TMPDIR to a folder that this user can write, and try: go env GOVERSION"
	case err != nil:
		c.Status, c.Detail = Absent, "not found: needed to build kube-proxy, but not for synclab's subjects"
		c.Remedy = "install Go (https://go.dev/dl), or name an existing kube-proxy with --kube-proxy"
	}
	return c
}

// examineCache checks the folder that keeps built programs.
func examineCache() Check {
	c := Check{Name: "cache folder", Status: OK}
	cache, err := upstream.OpenCache("")
	if err != nil {
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "set XDG_CACHE_HOME to a folder that this user can write"
		return c
	}
	c.Detail = cache.Path("") + " can be written"
	if usual, err := os.UserCacheDir(); err != nil || filepath.Dir(filepath.Clean(cache.Path(""))) != usual {
		c.Status, c.Detail = Warn, "the user's cache folder cannot be used; built programs go to "+cache.Path("")
		c.Remedy = "set XDG_CACHE_HOME to a folder that this user can write; otherwise kube-proxy is rebuilt whenever that folder is removed"
	}
	return c
}

// examineTemporary checks the folder for the labs' temporary files.
func examineTemporary(dir string) Check {
	const remedy = "set TMPDIR to another folder"
	c := examineFolder("temporary folder", dir, remedy)
	if err := upstream.MayRun(dir); err != nil && c.Status != Fail {
		c.Status, c.Detail, c.Remedy = Fail, err.Error(), remedy
	}
	return c
}

// examineOutput checks the folder that runs are written to.
func examineOutput(dir string) Check {
	return examineFolder("folder of runs", dir, "free some space, or choose another folder with --out")
}

// examineFolder checks that a folder can be written and has 256 MiB left.
func examineFolder(name, dir, remedy string) Check {
	const enough = 256 << 20
	c := Check{Name: name, Status: OK}
	path, err := filepath.Abs(dir)
	if err == nil {
		err = unix.Access(path, unix.W_OK)
	}
	var stat unix.Statfs_t
	if err == nil {
		err = unix.Statfs(path, &stat)
	}
	if err != nil {
		c.Status, c.Detail, c.Remedy = Fail, fmt.Sprintf("%s: %v", dir, err), remedy
		return c
	}
	free := stat.Bavail * uint64(stat.Bsize)
	c.Detail = fmt.Sprintf("%s: %d MiB left", path, free>>20)
	if free < enough {
		c.Status, c.Remedy = Warn, remedy
	}
	return c
}

// examineKubeProxy reports whether kube-proxy was built, without building it.
func examineKubeProxy(ctx context.Context, o upstream.Options) Check {
	c := Check{Name: "kube-proxy", Status: OK}
	path, version, err := upstream.KubeProxy(ctx, o)
	switch {
	case errors.Is(err, upstream.ErrNotBuilt):
		c.Status, c.Detail, c.Remedy = Absent, "not built yet: the first use builds it, with Go and the network, in some minutes", "synclab build kube-proxy builds it now"
	case err != nil:
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "remove that file and run synclab build kube-proxy to build it again"
	default:
		c.Detail = version + ", " + path
	}
	return c
}

func examineVeth(ctx context.Context) Check {
	c := Check{Name: "veth", Status: OK, Detail: "a pair can be made"}
	ip, err := iptables.FindBinary("ip")
	if err != nil {
		c.Status, c.Detail, c.Remedy = Absent, "not tried: no ip command", "install the iproute2 package to test veth"
		return c
	}
	out, err := TryTool(ctx, "", ip, "link", "add", "name", "near0", "type", "veth", "peer", "name", "far0")
	if err != nil {
		c.Status, c.Detail, c.Remedy = Fail, out, "load the kernel module: modprobe veth"
	}
	return c
}

// TryTool runs a tool in an empty namespace. It returns the tool's output, or the error's text if there was none.
func TryTool(ctx context.Context, stdin, path string, args ...string) (string, error) {
	var out strings.Builder
	_, err := netns.Isolated(ctx, func(cmd *exec.Cmd) {
		out.Reset()
		cmd.Stdin = strings.NewReader(stdin)
		cmd.Stdout, cmd.Stderr = &out, &out
	}, path, args...)
	text := strings.TrimSpace(out.String())
	if text == "" && err != nil {
		text = err.Error()
	}
	return text, err
}

func examineConntrack(file string) Check {
	c := Check{Name: "conntrack", Status: OK}
	limit, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Status, c.Detail = Warn, "not loaded, or not visible here: DNAT needs it, and loads it if allowed"
		c.Remedy = "modprobe nf_conntrack"
	case err != nil:
		c.Status, c.Detail = Warn, err.Error()
	default:
		c.Detail = "at most " + strings.TrimSpace(string(limit)) + " flows, for the whole machine"
	}
	return c
}

func examineIPv6(file string) Check {
	if _, err := os.Stat(file); err != nil {
		return Check{Name: "IPv6", Status: Absent, Detail: "the kernel has no IPv6: scenarios with family IPv6 cannot run",
			Remedy: "boot without ipv6.disable=1"}
	}
	return Check{Name: "IPv6", Status: OK, Detail: "available"}
}

// clockCost returns the time of one clock reading of the traversal probe, in ns.
func clockCost() int64 {
	const readings = 10_000
	start := RawClock()
	for range readings {
		RawClock()
	}
	return (RawClock() - start) / readings
}

// examineClock judges the clock of the traversal probe by its cost: every sample includes two readings.
func examineClock(cost int64) Check {
	const slow = 1000 // ns: as much as the rules to measure
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	c := Check{Name: "clock", Status: OK,
		Detail: fmt.Sprintf("CLOCK_MONOTONIC_RAW takes %d ns to read (%s)", cost, strings.TrimSpace(string(source)))}
	if cost > slow {
		c.Status, c.Remedy = Warn, "first-packet times are coarse here: use a machine with the tsc clocksource"
	}
	return c
}

func examineResources(m raw.Machine) Check {
	const enough = 2 << 30
	c := Check{Name: "machine", Status: OK, Detail: fmt.Sprintf("%d CPUs, %.1f GiB, %s", m.CPUs, float64(m.MemoryBytes)/(1<<30), m.CPU)}
	if m.CPUs < 2 {
		c.Status, c.Remedy = Warn, "with one CPU the simulated cluster and the proxier disturb each other: use two or more"
	}
	if m.MemoryBytes < enough {
		c.Status, c.Remedy = Warn, "10,000 Services need 2 GiB: choose a smaller N"
	}
	return c
}

// examineSendLimit checks the nft variant's netlink limit for users without CAP_NET_ADMIN in the machine's first user
// namespace; see kernel.SendLimit.
func examineSendLimit(limit int, err error) Check {
	const rule = 600       // bytes, about
	const need = 128 << 20 // 10,000 × 10 in one restore
	c := Check{Name: "restore size", Status: OK, Detail: "the size of an iptables-nft-restore is not limited"}
	switch {
	case err != nil:
		c.Status, c.Detail = Warn, err.Error()
	case limit > 0 && limit < need:
		c.Status = Warn
		c.Detail = fmt.Sprintf("one iptables-nft-restore of this user takes at most %d KiB of netlink messages, about %d rules",
			limit>>10, limit/rule)
		c.Remedy = fmt.Sprintf("run as root, or as root: sysctl net.core.wmem_default=%d", need)
	}
	return c
}

// examineJumps reports kernels that limit the jumps of an nftables ruleset in the namespaces of ordinary users.
func examineJumps(file string) []Check {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return []Check{{Name: "nftables jumps", Status: Warn,
		Detail: "in a user namespace the kernel accepts at most " + strings.TrimSpace(string(b)) +
			" jumps from the nft variant: it needs about one per Service and one per endpoint",
		Remedy: "run as root, or as root: sysctl net.netfilter.nf_tables_jumps_max_netns=1000000"}}
}
