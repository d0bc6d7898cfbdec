package netns_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/temporary"
)

// Tests start the test binary again, as a parent or as a worker.
const envRole = "SYNCLAB_TEST_ROLE"

func TestMain(m *testing.M) {
	if netns.IsGuest() {
		netns.RunGuest()
	}
	switch os.Getenv(envRole) {
	case "parent": // runs a worker until killed
		os.Setenv(envRole, "worker")
		err := netns.Reexec(context.Background(), nil, os.Stdout, os.Stderr, nil)
		os.Exit(netns.ExitCode(err))
	case "worker": // prints its directory, starts a child, waits
		worker()
	case "interrupted":
		interrupted()
	case "confined":
		reach()
	case "status":
		os.Exit(7)
	case "echo":
		echo()
	default:
		os.Exit(netns.TestMain(m))
	}
}

func worker() {
	lab, err := netns.Enter()
	if err != nil {
		fmt.Println("enter:", err)
		os.Exit(1)
	}
	child := exec.Command("sleep", "1000")
	child.Stdout = os.Stdout // keeps the pipe open as long as the child lives
	if err := child.Start(); err != nil {
		fmt.Println("child:", err)
		os.Exit(1)
	}
	fmt.Println(lab.Dir)
	time.Sleep(time.Hour) // until the test kills it; an empty select is a deadlock without cgo
}

// When the parent is killed, the worker and its child end, and the next sweep removes the directory.
func TestKilledParent(t *testing.T) {
	tmp := t.TempDir()
	parent := exec.Command("/proc/self/exe")
	parent.Env = append(os.Environ(), envRole+"=parent", "TMPDIR="+tmp)
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	dir, err := lines.ReadString('\n')
	if err != nil {
		t.Fatalf("the worker printed nothing: %v", err)
	}
	dir = filepath.Dir(strings.TrimSpace(dir)) // above the run's
	if filepath.Dir(dir) != tmp {
		t.Fatalf("lab directory %s is not in %s", dir, tmp)
	}
	if swept, err := temporary.Sweep(tmp); err != nil || len(swept) != 0 {
		t.Errorf("Sweep during a run = %v, %v; want nothing", swept, err)
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	// The pipe closes when the last process with its write end exits: the worker, then its child.
	if rest, err := io.ReadAll(lines); err != nil || len(rest) != 0 {
		t.Errorf("after the kill: %q, %v", rest, err)
	}
	_ = parent.Wait()
	swept, err := temporary.Sweep(tmp)
	if err != nil || len(swept) != 1 || swept[0] != dir {
		t.Errorf("Sweep = %v, %v; want [%s]", swept, err, dir)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) != 0 {
		t.Errorf("left in %s: %v, %v", tmp, left, err)
	}
}

func interrupted() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt)
	fmt.Println("ready")
	<-signals
	fmt.Println("last record")
	os.Exit(3)
}

// Cancelling the context interrupts the worker. The worker may finish its work, and leaves nothing behind.
func TestCancelInterruptsWorker(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	watch := writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), "ready") {
			cancel()
		}
		return out.Write(b)
	})
	err := netns.Reexec(ctx, nil, watch, os.Stderr, []string{envRole + "=interrupted"})
	if code := netns.ExitCode(err); code != 3 {
		t.Errorf("exit code %d (%v), want the worker's 3", code, err)
	}
	if want := "ready\nlast record\n"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left in %s: %v, %v", tmp, left, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// Available depends on no program. If it cannot test, it returns an error.
func TestAvailable(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := netns.Available(t.Context()); err != nil {
		t.Errorf("Available on a machine that runs these tests: %v", err)
	}
	t.Setenv("TMPDIR", "/nonexistent/folder")
	if _, err := netns.Available(t.Context()); err == nil {
		t.Error("no error without a temporary folder")
	}
}

func TestExitCode(t *testing.T) {
	err := netns.Reexec(t.Context(), nil, nil, nil, []string{envRole + "=status"})
	if code := netns.ExitCode(err); code != 7 {
		t.Errorf("exit code %d (%v), want 7", code, err)
	}
	var worker *netns.WorkerError
	if !errors.As(err, &worker) || !worker.Exited() {
		t.Errorf("%T (%v), want a worker that exited", err, err)
	}
}

func TestEnterRefuses(t *testing.T) {
	here, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("not a worker", func(t *testing.T) {
		t.Setenv("SYNCLAB_PARENT_NETNS", "")
		wantRefusal(t, "not started in a namespace made by Synclab")
	})
	t.Run("the parent's namespace", func(t *testing.T) {
		t.Setenv("SYNCLAB_PARENT_NETNS", here)
		wantRefusal(t, "started in")
	})
	t.Run("a link out", func(t *testing.T) {
		netns.Fresh(t)
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "eth0"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "out"}); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, "has an interface that Synclab did not make")
	})
	t.Run("a default route", func(t *testing.T) {
		netns.Fresh(t)
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			t.Fatal(err)
		}
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK}); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, "has a default route")
	})
}

func wantRefusal(t *testing.T, why string) {
	t.Helper()
	if _, err := netns.Enter(); err == nil || !strings.Contains(err.Error(), "refusing") || !strings.Contains(err.Error(), why) {
		t.Errorf("Enter = %v; want a refusal that says %q", err, why)
	}
}

// Fresh gives each test a new namespace.
func TestFresh(t *testing.T) {
	outer, err := netns.Current()
	if err != nil {
		t.Fatal(err)
	}
	t.Run("inner", func(t *testing.T) {
		netns.Fresh(t)
		if inner, err := netns.Current(); err != nil || inner == outer {
			t.Errorf("namespace %s, %v; want one other than %s", inner, err, outer)
		}
	})
	if again, err := netns.Current(); err != nil || again != outer {
		t.Errorf("namespace %s, %v after the test; want %s", again, err, outer)
	}
}

// Without IPv6 in a namespace, kube-proxy serves IPv4 only. The outer namespace keeps IPv6.
func TestDisableIPv6(t *testing.T) {
	if !netns.HasIPv6() {
		t.Skip("no IPv6 here")
	}
	t.Run("inside", func(t *testing.T) {
		netns.Fresh(t)
		if err := (&netns.Lab{}).DisableIPv6(); err != nil {
			t.Fatal(err)
		}
		if netns.HasIPv6() {
			t.Error("IPv6 is still there")
		}
	})
	if !netns.HasIPv6() {
		t.Error("the outer namespace lost IPv6")
	}
}

// Packets to Services and pods leave through the sink, the node's addresses are local, and no other route exists.
func TestConnect(t *testing.T) {
	netns.Fresh(t)
	lab := &netns.Lab{}
	err := lab.Connect(netns.Topology{
		Node: []netip.Addr{netip.MustParseAddr("172.18.0.2"), netip.MustParseAddr("fd00:172:18::2")},
		Sink: []netip.Prefix{
			netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("10.128.0.0/9"),
			netip.MustParsePrefix("fd00:10:96::/108"), netip.MustParsePrefix("fd00:10:128::/64"),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ to, device string }{
		{"10.96.0.1", netns.SinkDevice},
		{"10.200.3.4", netns.SinkDevice},
		{"fd00:10:96::7", netns.SinkDevice},
		{"fd00:10:128::7", netns.SinkDevice},
		{"172.18.0.2", "lo"},
		{"fd00:172:18::2", "lo"},
		{"192.0.2.1", ""},
		{"2001:db8::1", ""},
	} {
		routes, err := netlink.RouteGet(net.ParseIP(test.to))
		device := ""
		if err == nil && len(routes) == 1 {
			link, err := netlink.LinkByIndex(routes[0].LinkIndex)
			if err != nil {
				t.Fatal(err)
			}
			device = link.Attrs().Name
			if routes[0].Type == unix.RTN_LOCAL {
				device = "lo" // for IPv6, the route names the device with the address
			}
		}
		if device != test.device {
			t.Errorf("%s goes to device %q (%v), want %q", test.to, device, err, test.device)
		}
		conn, err := net.Dial("udp", net.JoinHostPort(test.to, "9"))
		if err == nil {
			_, err = conn.Write([]byte("x"))
			conn.Close()
		}
		if reached := err == nil; reached != (test.device != "") {
			t.Errorf("sending to %s: %v", test.to, err)
		}
	}
	if got := received(t, "sink0-far"); got != 0 {
		t.Errorf("%d packets arrived at the sink's far end, want none", got)
	}
}

func received(t *testing.T, device string) uint64 {
	t.Helper()
	link, err := netlink.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Statistics.RxPackets
}

// Isolated runs commands in a new, empty namespace.
func TestIsolated(t *testing.T) {
	var out bytes.Buffer
	if _, err := netns.Isolated(t.Context(), func(c *exec.Cmd) { out.Reset(); c.Stdout = &out },
		"sh", "-c", "cat /proc/net/dev; readlink /proc/self/ns/net; echo $XTABLES_LOCKFILE"); err != nil {
		t.Fatal(err)
	}
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), here) {
		t.Errorf("ran in this namespace:\n%s", &out)
	}
	if !strings.Contains(out.String(), "xtables.lock") {
		t.Errorf("no private lock file:\n%s", &out)
	}
	if _, err := netns.Isolated(t.Context(), nil, "no-such-tool"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("missing tool: %v, want %v", err, exec.ErrNotFound)
	}
}
