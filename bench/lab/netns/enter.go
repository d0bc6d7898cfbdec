package netns

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	kernelns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Lab is the namespace that this process works in.
type Lab struct {
	// Dir is the private directory; it is removed at the end.
	Dir string
	// LockFile is the private xtables lock, as in the environment's XTABLES_LOCKFILE.
	LockFile string
	// User reports whether there is a separate user namespace: root inside, an ordinary user outside.
	User bool
}

// Inside reports whether Reexec started this process or one of its ancestors.
func Inside() bool { return os.Getenv(envParent) != "" }

// HasIPv6 reports whether the calling thread's namespace has IPv6. It uses kube-proxy's test.
func HasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil && sysctl(disableIPv6) != "1"
}

const disableIPv6 = "net/ipv6/conf/all/disable_ipv6"

// DisableIPv6 turns IPv6 off in the current namespace.
func (l *Lab) DisableIPv6() error {
	if err := Guard(); err != nil {
		return err
	}
	if !HasIPv6() {
		return nil
	}
	if err := os.WriteFile("/proc/sys/"+disableIPv6, []byte("1"), 0); err != nil {
		return fmt.Errorf("disable IPv6 in the namespace: %w", err)
	}
	return nil
}

// Current returns the identity of the calling thread's network namespace.
func Current() (string, error) {
	// By path: kernelns.Get uses the process id, and /proc may belong to another PID namespace.
	ns, err := kernelns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("network namespace of this thread: %w", err)
	}
	defer ns.Close()
	return ns.UniqueId(), nil
}

// Guard returns an error unless the calling thread is in another network namespace than the one Synclab was started in.
// Call it before any change of rules, flows or links.
func Guard() error {
	parent := os.Getenv(envParent)
	if parent == "" {
		return errors.New("refusing to work: this process was not started in a namespace made by Synclab")
	}
	here, err := Current()
	if err != nil {
		return err
	}
	if here == parent {
		return fmt.Errorf("refusing to work in the network namespace that Synclab was started in (%s)", here)
	}
	return nil
}

// Enter must be a worker's first call. It checks that the namespace was made for this worker, and brings lo up. It
// refuses, without changes, the parent's namespace and any namespace with a link out. A worker's child may call it too.
func Enter() (*Lab, error) {
	here, err := Current()
	if err != nil {
		return nil, err
	}
	if err := Guard(); err != nil {
		return nil, err
	}
	lab := &Lab{Dir: os.Getenv(envDir), LockFile: os.Getenv(envLock), User: InUserNamespace()}
	if os.Getenv(envEntered) == here {
		return lab, nil
	}
	if err := noWayOut(); err != nil {
		return nil, fmt.Errorf("refusing to work in network namespace %s: %w", here, err)
	}
	if err := followParent(); err != nil {
		return nil, err
	}
	ownProc()
	pinLock(lab.LockFile)
	if err := loopbackUp(); err != nil {
		if errors.Is(err, unix.EPERM) && lab.User {
			// Ubuntu allows the clone, but removes the capabilities.
			return nil, unavailable(true, err)
		}
		return nil, err
	}
	if err := os.Setenv(envEntered, here); err != nil {
		return nil, err
	}
	return lab, nil
}

// fallback are the devices that the kernel adds to every namespace when a tunnel module is loaded
// (net.core.fb_tunnels_only_for_init_net). They are down and have no peer.
var fallback = map[string]bool{
	"ipip": true, "sit": true, "ip6tnl": true, "gre": true, "gretap": true, "erspan": true,
	"ip6gre": true, "ip6gretap": true, "ip6erspan": true, "vti": true, "vti6": true,
}

// noWayOut returns an error if the namespace has an interface other than lo, or a default route.
func noWayOut() error {
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range links {
		attrs := link.Attrs()
		if attrs.RawFlags&unix.IFF_LOOPBACK != 0 || fallback[link.Type()] && attrs.RawFlags&unix.IFF_UP == 0 {
			continue
		}
		return fmt.Errorf("it has an interface that Synclab did not make: %s (%s)", attrs.Name, link.Type())
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // this kernel has no IPv6
		}
		if err != nil {
			return fmt.Errorf("list routes: %w", err)
		}
		for _, route := range routes {
			if ones, _ := mask(route); ones == 0 && route.Type == unix.RTN_UNICAST {
				return fmt.Errorf("it has a default route: %s", route)
			}
		}
	}
	return nil
}

func mask(r netlink.Route) (ones, bits int) {
	if r.Dst == nil {
		return 0, 0
	}
	return r.Dst.Mask.Size()
}

// followParent exits this process when the parent's end of the lifeline closes. This works even if the parent-death
// signal was lost.
func followParent() error {
	fd, err := strconv.Atoi(os.Getenv(envLifeline))
	if err != nil {
		return fmt.Errorf("%s: %w", envLifeline, err)
	}
	unix.CloseOnExec(fd)
	pipe := os.NewFile(uintptr(fd), "lifeline")
	go func() {
		_, err := io.Copy(io.Discard, pipe)
		if !errors.Is(err, fs.ErrClosed) {
			os.Exit(2)
		}
	}()
	runtime.KeepAlive(pipe)
	return nil
}

// ownProc mounts a /proc of this PID namespace, in this mount namespace only. If the mount fails (a container masks
// parts of /proc), the old /proc stays; /proc/self and /proc/thread-self still work there.
func ownProc() {
	// Otherwise the mount would propagate to the machine's mount namespace.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return
	}
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// pinLock makes the lock file a mount point, in this mount namespace and those made of it: a subject, which may write to the
// folder, then cannot put a link to another file in its place, which the tools of the lab would follow. Where mounts are
// forbidden, the file stays as it is.
func pinLock(file string) {
	if file != "" {
		_ = unix.Mount(file, file, "", unix.MS_BIND, "")
	}
}

// InUserNamespace reports whether this process is outside the machine's initial user namespace, which maps all ids to
// themselves.
func InUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var inside, outside, size uint64
	if _, err := fmt.Sscan(string(b), &inside, &outside, &size); err != nil {
		return true // no id map
	}
	return size != 1<<32-1
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	return nil
}

// TB is the part of testing.TB that Fresh needs.
type TB interface {
	Helper()
	Skip(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Fresh moves the calling goroutine, locked to its thread, into another new network namespace until the test ends. The
// namespace has only lo. Children started by this goroutine are in it; other goroutines are not.
func Fresh(t TB) {
	t.Helper()
	if short() {
		t.Skip("-short: tests of the kernel take seconds")
	}
	if !Inside() {
		t.Fatalf("netns.Fresh outside a namespace made by Synclab: call netns.TestMain in the package's TestMain")
	}
	runtime.LockOSThread()
	before, err := kernelns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := kernelns.Set(before); err == nil {
			runtime.UnlockOSThread() // otherwise the thread stays locked and ends with its goroutine
		}
		before.Close()
	})
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("unshare: %v", err)
	}
	if err := loopbackUp(); err != nil {
		t.Fatalf("%v", err)
	}
}
