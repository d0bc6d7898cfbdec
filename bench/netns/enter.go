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

// Lab is the namespace this process may work in.
type Lab struct {
	// Dir is the lab's private directory; it goes with the lab.
	Dir string
	// LockFile is the lab's own xtables lock, as in the environment's XTABLES_LOCKFILE.
	LockFile string
	// User is true when the lab has a user namespace of its own: root inside, an ordinary user outside.
	User bool
}

// Inside says whether this process was started by Reexec, or by a process that was.
func Inside() bool { return os.Getenv(envParent) != "" }

// HasIPv6 says whether the namespace of the calling thread has IPv6, as kube-proxy finds out.
func HasIPv6() bool {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err == nil && sysctl(disableIPv6) != "1"
}

const disableIPv6 = "net/ipv6/conf/all/disable_ipv6"

// DisableIPv6 lets the lab's namespace be without IPv6.
func (l *Lab) DisableIPv6() error {
	if err := Guard(); err != nil {
		return err
	}
	if !HasIPv6() {
		return nil
	}
	if err := os.WriteFile("/proc/sys/"+disableIPv6, []byte("1"), 0); err != nil {
		return fmt.Errorf("disable IPv6 in the lab's namespace: %w", err)
	}
	return nil
}

// Current identifies the network namespace of the calling thread.
func Current() (string, error) {
	// By path: netns.Get goes by process id, and /proc may be of another PID namespace.
	ns, err := kernelns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		return "", fmt.Errorf("network namespace of this thread: %w", err)
	}
	defer ns.Close()
	return ns.UniqueId(), nil
}

// Guard returns an error unless the calling thread is in a network namespace other than the one the lab was started in.
// Whatever changes rules, flows or links asks first.
func Guard() error {
	parent := os.Getenv(envParent)
	if parent == "" {
		return errors.New("refusing to work: this process was not started in a namespace made by the lab")
	}
	here, err := Current()
	if err != nil {
		return err
	}
	if here == parent {
		return fmt.Errorf("refusing to work in the network namespace the lab was started in (%s)", here)
	}
	return nil
}

// Enter is what a worker does first: it makes sure that this is a namespace made for it, and brings lo up. It refuses,
// and changes nothing, in the namespace the parent was in and in any namespace with a way out. A child of a worker
// may call it too.
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
	if err := loopbackUp(); err != nil {
		if errors.Is(err, unix.EPERM) && lab.User {
			// Ubuntu lets the clone pass and takes the capabilities away.
			return nil, unavailable(true, err)
		}
		return nil, err
	}
	if err := os.Setenv(envEntered, here); err != nil {
		return nil, err
	}
	return lab, nil
}

// Close is for symmetry with Enter: namespace and directory go with the process and its parent.
func (l *Lab) Close() error { return nil }

// fallback are the devices that the kernel puts into every namespace when a tunnel module is loaded
// (net.core.fb_tunnels_only_for_init_net). They are down and lead nowhere.
var fallback = map[string]bool{
	"ipip": true, "sit": true, "ip6tnl": true, "gre": true, "gretap": true, "erspan": true,
	"ip6gre": true, "ip6gretap": true, "ip6erspan": true, "vti": true, "vti6": true,
}

// noWayOut refuses a namespace with an interface other than lo, or with a default route.
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
		return fmt.Errorf("it has an interface that the lab did not make: %s (%s)", attrs.Name, link.Type())
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteList(nil, family)
		if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			continue // no IPv6 in this kernel
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

// followParent ends this process when the parent's end of the lifeline closes: also when the parent-death signal
// was lost.
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

// ownProc mounts a /proc that shows this PID namespace, in this mount namespace only. Where it may not (a container
// that masks parts of /proc), the old one stays: /proc/self and /proc/thread-self work in it all the same.
func ownProc() {
	// Without this, the mount would spread to the machine's own mount namespace.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return
	}
	_ = unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "")
}

// InUserNamespace says whether this process is in a user namespace other than the machine's first, which maps all ids
// to themselves.
func InUserNamespace() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false
	}
	var inside, outside, size uint64
	if _, err := fmt.Sscan(string(b), &inside, &outside, &size); err != nil {
		return true // no map at all
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
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Fresh moves the calling goroutine, locked to its thread, into one more network namespace with nothing in it but lo,
// until the test ends. Children started by this goroutine are in it; other goroutines are not.
func Fresh(t TB) {
	t.Helper()
	if !Inside() {
		t.Fatalf("netns.Fresh outside a lab: the package needs TestMain with netns.TestMain")
	}
	runtime.LockOSThread()
	before, err := kernelns.GetFromPath("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := kernelns.Set(before); err == nil {
			runtime.UnlockOSThread() // otherwise the thread stays locked, and ends with its goroutine
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
