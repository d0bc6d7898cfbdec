package bench

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

	"synclab/bench/netns"
	"synclab/bench/upstream"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
)

// Status is what a check found.
type Status string

// The states of a check.
const (
	OK     Status = "ok"
	Warn   Status = "warn"   // works with a limit that Detail names
	Fail   Status = "fail"   // something a run needs does not work
	Absent Status = "absent" // not there; runs that need it cannot be made
)

// Check is one thing that was looked at.
type Check struct {
	Name   string `json:"name"`
	Status Status `json:"status"`
	Detail string `json:"detail"`
	// Remedy says what to do about it; empty when there is nothing to do.
	Remedy string `json:"remedy,omitempty"`
}

// Examine finds out what this machine and this user can do, by doing it: rules are tried in empty namespaces that end
// with the tool that tries them.
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

// What the kernel tells in files.
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
		c.Remedy = "run as root, or allow user namespaces as said"
	case err != nil:
		c.Status, c.Detail = Fail, fmt.Sprintf("could not be tried: %v", err)
	case user:
		c.Detail = "in a user namespace of its own"
	}
	return c
}

// examineVariant looks for the tools of a variant and at what they say they are.
func examineVariant(ctx context.Context, variant iptables.Variant) Check {
	tool := iptables.Binary(variant, corev1.IPv4Protocol, "")
	c := Check{Name: tool, Status: OK, Detail: toolVersion(ctx, tool)}
	want := map[iptables.Variant]string{iptables.Legacy: "(legacy)", iptables.Nft: "(nf_tables)"}[variant]
	switch {
	case c.Detail == "":
		c.Status, c.Detail = Absent, "not found"
		c.Remedy = "install the iptables package (newer distributions: iptables-legacy is a package of its own)"
	case !strings.Contains(c.Detail, want):
		c.Status, c.Remedy = Fail, fmt.Sprintf("%s should be the %s variant: look at the alternatives of iptables", tool, want)
	}
	return c
}

// examineDefault says which variant the plain name is: the lab does not use it, but people do.
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

// examineGo looks for what kube-proxy is built with.
func examineGo(ctx context.Context) Check {
	version, err := upstream.GoVersion(ctx)
	c := Check{Name: "go", Status: OK, Detail: version}
	switch {
	case err != nil && !errors.Is(err, upstream.ErrNoGo):
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "let TMPDIR name a folder that this user can write, and try: go env GOVERSION"
	case err != nil:
		c.Status, c.Detail = Absent, "not found: kube-proxy is built with it; synclab's subjects do not need it"
		c.Remedy = "install Go (https://go.dev/dl), or name a kube-proxy that you have with --kube-proxy"
	}
	return c
}

// examineCache is about the folder that what is built is kept in.
func examineCache() Check {
	c := Check{Name: "cache folder", Status: OK}
	cache, err := upstream.OpenCache("")
	if err != nil {
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "let XDG_CACHE_HOME name a folder that this user can write"
		return c
	}
	c.Detail = cache.Path("") + " can be written"
	if usual, err := os.UserCacheDir(); err != nil || filepath.Dir(filepath.Clean(cache.Path(""))) != usual {
		c.Status, c.Detail = Warn, "the user's cannot be used; what is built goes to "+cache.Path("")
		c.Remedy = "let XDG_CACHE_HOME name a folder that this user can write, or kube-proxy is built again when that one is gone"
	}
	return c
}

// examineTemporary is about the folder that labs live in.
func examineTemporary(dir string) Check {
	const remedy = "let TMPDIR name another folder"
	c := examineFolder("temporary folder", dir, remedy)
	if err := upstream.MayRun(dir); err != nil && c.Status != Fail {
		c.Status, c.Detail, c.Remedy = Fail, err.Error(), remedy
	}
	return c
}

// examineOutput is about the folder that runs are written to.
func examineOutput(dir string) Check {
	return examineFolder("folder of runs", dir, "make room, or let --out name another folder")
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

// examineKubeProxy says whether kube-proxy was built, without building it.
func examineKubeProxy(ctx context.Context, o upstream.Options) Check {
	c := Check{Name: "kube-proxy", Status: OK}
	path, version, err := upstream.KubeProxy(ctx, o)
	switch {
	case errors.Is(err, upstream.ErrNotBuilt):
		c.Status, c.Detail, c.Remedy = Absent, "not built yet: its first use does that, with Go and the network, in some minutes", "synclab kube-proxy builds it now"
	case err != nil:
		c.Status, c.Detail, c.Remedy = Warn, err.Error(), "remove that file, and synclab kube-proxy builds it again"
	default:
		c.Detail = version + ", " + path
	}
	return c
}

func examineVeth(ctx context.Context) Check {
	c := Check{Name: "veth", Status: OK, Detail: "a pair can be made"}
	ip, err := iptables.FindBinary("ip")
	if err != nil {
		c.Status, c.Detail, c.Remedy = Absent, "not tried: no ip command", "install the iproute2 package to have it tried"
		return c
	}
	out, err := tryTool(ctx, "", ip, "link", "add", "name", "near0", "type", "veth", "peer", "name", "far0")
	if err != nil {
		c.Status, c.Detail, c.Remedy = Fail, out, "load the kernel module: modprobe veth"
	}
	return c
}

// tryTool runs a tool in an empty namespace and returns what it printed, or the error when it printed nothing.
func tryTool(ctx context.Context, stdin, path string, args ...string) (string, error) {
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
		c.Status, c.Detail = Warn, "not loaded, or not visible here: DNAT needs it and loads it when it may"
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
		return Check{Name: "IPv6", Status: Absent, Detail: "the kernel has none: scenarios with family IPv6 cannot run",
			Remedy: "boot without ipv6.disable=1"}
	}
	return Check{Name: "IPv6", Status: OK, Detail: "there"}
}

// clockCost is what reading the clock of the traversal probe takes, in ns.
func clockCost() int64 {
	const readings = 10_000
	start := rawClock()
	for range readings {
		rawClock()
	}
	return (rawClock() - start) / readings
}

// examineClock judges the clock of the traversal probe by its cost: two readings are part of every sample.
func examineClock(cost int64) Check {
	const slow = 1000 // ns: as much as the rules that are to be measured
	source, _ := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	c := Check{Name: "clock", Status: OK,
		Detail: fmt.Sprintf("CLOCK_MONOTONIC_RAW takes %d ns to read (%s)", cost, strings.TrimSpace(string(source)))}
	if cost > slow {
		c.Status, c.Remedy = Warn, "first-packet times are coarse here: use a machine with the tsc clocksource"
	}
	return c
}

func examineResources(m Machine) Check {
	const enough = 2 << 30
	c := Check{Name: "machine", Status: OK, Detail: fmt.Sprintf("%d CPUs, %.1f GiB, %s", m.CPUs, float64(m.MemoryBytes)/(1<<30), m.CPU)}
	if m.CPUs < 2 {
		c.Status, c.Remedy = Warn, "with one CPU the simulated cluster and the proxier disturb each other: use two or more"
	}
	if m.MemoryBytes < enough {
		c.Status, c.Remedy = Warn, "10,000 Services want 2 GiB: choose a smaller N"
	}
	return c
}

// examineSendLimit is about the nft variant without CAP_NET_ADMIN in the machine's first user namespace; see
// kernel.SendLimit.
func examineSendLimit(limit int, err error) Check {
	const rule = 600       // bytes, about
	const need = 128 << 20 // 10,000 × 10 in one restore
	c := Check{Name: "restore size", Status: OK, Detail: "iptables-nft-restore may be as large as it likes"}
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

// examineJumps is about kernels that limit the jumps of an nftables ruleset in the namespaces of ordinary users.
func examineJumps(file string) []Check {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return []Check{{Name: "nftables jumps", Status: Warn,
		Detail: "in a user namespace the kernel takes at most " + strings.TrimSpace(string(b)) +
			" jumps from the nft variant: about one a Service and one an endpoint",
		Remedy: "run as root, or as root: sysctl net.netfilter.nf_tables_jumps_max_netns=1000000"}}
}
