package shim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// install installs shims in front of tools. A tool is a shell script, or the path of a program if it begins with "/".
func install(t testing.TB, variant string, tools map[string]string) *Shim {
	t.Helper()
	return installFor(t, Options{Variant: variant}, tools)
}

func installFor(t testing.TB, opts Options, tools map[string]string) *Shim {
	t.Helper()
	dir := t.TempDir()
	for name, script := range tools {
		path := filepath.Join(dir, name)
		var err error
		if strings.HasPrefix(script, "/") {
			err = os.Symlink(script, path)
		} else {
			err = os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
		if opts.Variant == "" || !strings.Contains(name, opts.Variant) {
			opts.Tools = append(opts.Tools, name)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	opts.Dir = filepath.Join(t.TempDir(), "shim")
	s, err := Install(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *Shim) cmd(name string, args ...string) *exec.Cmd {
	return exec.Command(filepath.Join(s.Path(), name), args...)
}

// only returns the single call that was made.
func only(t *testing.T, s *Shim) Call {
	t.Helper()
	calls, _, err := s.Read(0)
	if err != nil || len(calls) != 1 {
		t.Fatalf("%d calls, %v; want one", len(calls), err)
	}
	return calls[0]
}

func TestPassesOn(t *testing.T) {
	s := install(t, "", map[string]string{"iptables": `
		printf '%s|' "$@"; echo "$SYNCLAB_TEST_WORD"; echo problem >&2; exit 3`})
	args := []string{"-A", "a b", "", `quote " and \`, "umläut", "line\nend\t\x01"}
	cmd := s.cmd("iptables", args...)
	cmd.Env = append(os.Environ(), "SYNCLAB_TEST_WORD=kept")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	before := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("exited with %v", err)
	}
	if want := strings.Join(args, "|") + "|kept\n"; stdout.String() != want {
		t.Errorf("stdout %q, want %q", stdout.String(), want)
	}
	if stderr.String() != "problem\n" {
		t.Errorf("stderr %q", stderr.String())
	}
	c := only(t, s)
	if c.Tool != "iptables" || filepath.Base(c.Real) != "iptables" || filepath.Dir(c.Real) == s.Path() {
		t.Errorf("tool %q, real %q", c.Tool, c.Real)
	}
	if !slices.Equal(c.Args, args) {
		t.Errorf("args %q", c.Args)
	}
	if c.ExitCode != 3 || c.Signal != 0 || c.Fault != "" || c.Parent != os.Getpid() || c.PID != cmd.Process.Pid {
		t.Errorf("got %+v", c)
	}
	if c.Stdout != int64(stdout.Len()) || c.Stdin != 0 {
		t.Errorf("stdin %d, stdout %d; want 0 and %d", c.Stdin, c.Stdout, stdout.Len())
	}
	if c.Start.Before(before.Round(0)) || c.End.Before(c.Start) || c.End.After(time.Now()) {
		t.Errorf("from %v to %v", c.Start, c.End)
	}
}

func TestVariant(t *testing.T) {
	s := install(t, "nft", map[string]string{
		"iptables": "echo wrong", "iptables-restore": "echo wrong", "ip6tables-save": "echo wrong", "iptables-legacy": "echo old",
		"iptables-nft": "echo plain", "iptables-nft-restore": "echo restore", "ip6tables-nft-save": "echo save", "nft": "echo nft",
	})
	for name, want := range map[string]string{
		"iptables": "plain\n", "iptables-restore": "restore\n", "ip6tables-save": "save\n", "iptables-legacy": "old\n",
	} {
		out, err := s.cmd(name).Output()
		if err != nil || string(out) != want {
			t.Errorf("%s: %q, %v; want %q", name, out, err, want)
		}
	}
	_, err := Install(t.Context(), Options{Dir: t.TempDir(), Variant: "nosuch", Tools: []string{"iptables"}})
	if err == nil || !strings.Contains(err.Error(), "iptables-nosuch") {
		t.Errorf("a missing variant: %v", err)
	}
}

// TestName checks that the tool sees its own name: the iptables tools are one program that reads its name.
func TestName(t *testing.T) {
	s := install(t, "legacy", map[string]string{"iptables": "echo wrong", "iptables-legacy": "/bin/sh"})
	out, err := s.cmd("iptables", "-c", "tr '\\0' ' ' < /proc/$$/cmdline").Output()
	if err != nil || !strings.HasPrefix(string(out), "iptables-legacy -c ") {
		t.Errorf("command line %q, %v", out, err)
	}
}

// Files next to the program's source are not embedded.
func TestSourceIsTheProgramAlone(t *testing.T) {
	if err := eachSource(func(name string, _ []byte) error {
		if ext := filepath.Ext(name); ext != ".go" && ext != ".s" {
			t.Errorf("%s is embedded", name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func TestMissingToolsAreLeftOut(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	s, err := Install(t.Context(), Options{Dir: t.TempDir(), Tools: []string{"no-such-tool-anywhere"}})
	if err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(s.Path()); len(entries) != 0 {
		t.Errorf("unexpected entries: %v", entries)
	}
}

func TestStdin(t *testing.T) {
	const size = 30 << 20
	payload := make([]byte, size)
	rng := rand.NewChaCha8([32]byte{1})
	_, _ = rng.Read(payload)
	file := filepath.Join(t.TempDir(), "payload")
	if err := os.WriteFile(file, payload, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(t *testing.T) *os.File {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	for _, c := range []struct {
		name  string
		tool  string
		stdin func(t *testing.T) io.Reader
		bytes int // expected to arrive
		count int64
	}{
		{"pipe", "iptables-restore", func(*testing.T) io.Reader { return onlyReader{bytes.NewReader(payload)} }, size, size},
		{"small pipe", "iptables-restore", func(*testing.T) io.Reader { return onlyReader{bytes.NewReader(payload[:5])} }, 5, 5},
		{"empty pipe", "iptables-restore", func(*testing.T) io.Reader { return onlyReader{bytes.NewReader(nil)} }, 0, 0},
		{"pipe for others too", "iptables", func(*testing.T) io.Reader { return onlyReader{bytes.NewReader(payload)} }, size, Unknown},
		{"file", "iptables-restore", func(t *testing.T) io.Reader { return open(t) }, size, size},
		{"file from its middle", "iptables-restore", func(t *testing.T) io.Reader {
			f := open(t)
			if _, err := f.Seek(1000, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			return f
		}, size - 1000, size - 1000},
		{"null", "iptables-restore", func(*testing.T) io.Reader { return nil }, 0, 0},
		{"terminal", "iptables-restore", terminal, 0, Unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := install(t, "", map[string]string{c.tool: "/bin/cat"})
			cmd := s.cmd(c.tool)
			cmd.Stdin = c.stdin(t)
			got := sha256.New()
			cmd.Stdout = onlyWriter{got}
			if err := cmd.Run(); err != nil {
				t.Fatal(err)
			}
			if want := sha256.Sum256(payload[size-c.bytes:]); c.bytes == size && !bytes.Equal(got.Sum(nil), want[:]) {
				t.Error("the output differs from the input")
			}
			call := only(t, s)
			if call.Stdin != c.count || call.Stdout != int64(c.bytes) {
				t.Errorf("stdin %d, stdout %d; want %d, %d", call.Stdin, call.Stdout, c.count, c.bytes)
			}
		})
	}
}

// onlyReader and onlyWriter make package exec use pipes.
type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// terminal returns a terminal whose user has typed the end of the input.
func terminal(t *testing.T) io.Reader {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(int(user.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Skip("no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(int(user.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	program, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	t.Cleanup(func() { program.Close() })
	if _, err := user.Write([]byte{4}); err != nil { // Ctrl-D
		t.Fatal(err)
	}
	return program
}

// TestFamily: the calls of both families have one name, nft. The family comes from nft's input, which must still reach
// it.
func TestFamily(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "cat", "iptables-restore": "cat", "ip6tables": "exit 0"})
	long := strings.Repeat("add element ip kube-proxy no { 1 }\n", 10_000)
	for _, c := range []struct {
		tool, args, stdin string
		want              corev1.IPFamily
	}{
		{"nft", "-f -", "add table ip kube-proxy { comment \"rules\" ; }\n" + long, corev1.IPv4Protocol},
		{"nft", "-f -", "flush chain ip6 kube-proxy services\n" + long, corev1.IPv6Protocol},
		{"nft", "-f -", "add table inet other\nadd table ip kube-proxy\n", ""},
		{"nft", "-f -", "", ""},
		{"nft", "--json list table ip6 kube-proxy", "", corev1.IPv6Protocol},
		{"iptables-restore", "", "*nat\n# ip6 \nCOMMIT\n", corev1.IPv4Protocol},
		{"ip6tables", "-S", "", corev1.IPv6Protocol},
	} {
		_, next, err := s.Read(0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := s.cmd(c.tool, strings.Fields(c.args)...)
		cmd.Stdin = strings.NewReader(c.stdin)
		out, err := cmd.Output()
		if reads := c.args == "" || c.args == "-f -"; err != nil || reads && string(out) != c.stdin {
			t.Errorf("%s %s: %v, %d bytes of %d came through", c.tool, c.args, err, len(out), len(c.stdin))
		}
		calls, _, err := s.Read(next)
		if err != nil || len(calls) != 1 {
			t.Fatalf("%d calls, %v", len(calls), err)
		}
		if got := calls[0].Family(); got != c.want {
			t.Errorf("%s %s %.40q: family %q, want %q (head %q)", c.tool, c.args, c.stdin, got, c.want, calls[0].Head)
		}
	}
}

// TestUnreadInput checks that a tool that stops reading exits as without a shim, and that the writer gets EPIPE.
func TestUnreadInput(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "head -c 10 >/dev/null; exit 2"})
	cmd := s.cmd("iptables-restore")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := stdin.Write(make([]byte, 10<<20)); !errors.Is(err, unix.EPIPE) {
		t.Errorf("writing to a tool that has exited: %v", err)
	}
	_ = cmd.Wait()
	if c := only(t, s); c.ExitCode != 2 || c.Stdin < 10 || c.Stdin > 1<<20 {
		t.Errorf("exit %d, stdin %d", c.ExitCode, c.Stdin)
	}
}

// TestUnreadOutput checks that a tool gets SIGPIPE when no process reads its output.
func TestUnreadOutput(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-save": "/usr/bin/yes"})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.cmd("iptables-save")
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	if _, err := io.ReadFull(r, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
	r.Close()
	_ = cmd.Wait()
	if c := only(t, s); c.Stdout < 1<<20 || c.Signal != unix.SIGPIPE {
		t.Errorf("ended with %d, signal %v, wrote %d", c.ExitCode, c.Signal, c.Stdout)
	}
}

// TestSharedOutput checks that standard output and standard error in one pipe keep their order.
func TestSharedOutput(t *testing.T) {
	s := install(t, "", map[string]string{"iptables": "for i in 1 2 3 4 5 6 7 8 9; do echo out $i; echo err $i >&2; done"})
	got, err := s.cmd("iptables").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for i := 1; i < 10; i++ {
		fmt.Fprintf(&want, "out %d\nerr %d\n", i, i)
	}
	if string(got) != want.String() {
		t.Errorf("got %q", got)
	}
	if c := only(t, s); c.Stdout != Unknown {
		t.Errorf("stdout %d", c.Stdout)
	}
}

func TestClosedStreams(t *testing.T) {
	// A command in a substitution would show what the shell opens for it.
	s := install(t, "", map[string]string{"iptables-restore": `
		for fd in 0 1 2; do [ -e /proc/$$/fd/$fd ] && list="$list $fd"; done; echo "$list" > "$SYNCLAB_TEST_OUT"`})
	out := filepath.Join(t.TempDir(), "out")
	for _, c := range []struct{ closed, open string }{
		{"", " 0 1 2"}, {"<&-", " 1 2"}, {">&-", " 0 2"}, {"<&- >&-", " 2"}, {"<&- >&- 2>&-", ""}, {"2>&-", " 0 1"},
	} {
		cmd := exec.Command("/bin/sh", "-c", `exec "$0" `+c.closed, filepath.Join(s.Path(), "iptables-restore"))
		cmd.Env = append(os.Environ(), "SYNCLAB_TEST_OUT="+out)
		cmd.Stdin = onlyReader{strings.NewReader("unread")}
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", c.closed, err)
		}
		if got, err := os.ReadFile(out); err != nil || string(got) != c.open+"\n" {
			t.Errorf("%s: the tool has %q open, %v; want %q", c.closed, got, err, c.open)
		}
	}
}

func TestSignals(t *testing.T) {
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP} {
		t.Run("handled "+unix.SignalName(sig), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("ignored by the parent process (nohup?), and a shell cannot undo that")
			}
			s := install(t, "", map[string]string{"nft": "trap 'kill -9 $!; echo got it; exit 7' TERM INT HUP; sleep 1000 >&2 & echo ready; wait"})
			cmd, lines := begin(t, s, "nft")
			_ = cmd.Process.Signal(sig)
			if rest, err := io.ReadAll(lines); err != nil || string(rest) != "got it\n" {
				t.Errorf("output %q, %v", rest, err)
			}
			_ = cmd.Wait()
			if c := only(t, s); c.ExitCode != 7 || cmd.ProcessState.ExitCode() != 7 {
				t.Errorf("exit %d, as %v", c.ExitCode, cmd.ProcessState)
			}
		})
	}
	for _, sig := range []syscall.Signal{unix.SIGTERM, unix.SIGKILL, unix.SIGSEGV} {
		t.Run("died of "+unix.SignalName(sig), func(t *testing.T) {
			s := install(t, "", map[string]string{"nft": "kill -" + strings.TrimPrefix(unix.SignalName(sig), "SIG") + " $$"})
			cmd := s.cmd("nft")
			_ = cmd.Run()
			status := cmd.ProcessState.Sys().(syscall.WaitStatus)
			if !status.Signaled() || status.Signal() != sig {
				t.Errorf("the caller sees %v", cmd.ProcessState)
			}
			if c := only(t, s); c.ExitCode != -1 || c.Signal != sig {
				t.Errorf("exit %d, signal %v", c.ExitCode, c.Signal)
			}
		})
	}
}

// begin starts a tool that prints "ready".
func begin(t *testing.T, s *Shim, name string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := s.cmd(name)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(stdout, ready); err != nil || string(ready) != "ready\n" {
		t.Fatalf("output %q, %v", ready, err)
	}
	return cmd, stdout
}

// TestKilledShim checks that a tool does not outlive its shim.
func TestKilledShim(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "echo ready; exec sleep 1000"})
	cmd, lines := begin(t, s, "nft")
	_ = cmd.Process.Kill()
	if _, err := io.ReadAll(lines); err != nil { // the pipe closes when the tool is gone too
		t.Error(err)
	}
	_ = cmd.Wait()
}

// TestIgnoredChildren has a caller that ignores SIGCHLD, which its children inherit.
func TestIgnoredChildren(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "exit 5"})
	cmd := exec.Command("/bin/sh", "-c", `trap "" CHLD; exec "$0"`, filepath.Join(s.Path(), "nft"))
	_ = cmd.Run()
	if c := only(t, s); cmd.ProcessState.ExitCode() != 5 || c.ExitCode != 5 {
		t.Errorf("exit %v, recorded as %d", cmd.ProcessState, c.ExitCode)
	}
}

func TestResources(t *testing.T) {
	// dd reads 40 MiB as one block.
	s := install(t, "", map[string]string{"nft": "/usr/bin/dd", "iptables": "exit 0"})
	if err := s.cmd("nft", "if=/dev/zero", "of=/dev/null", "bs=40M", "count=20").Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd("iptables").Run(); err != nil {
		t.Fatal(err)
	}
	calls, _, err := s.Read(0)
	if err != nil || len(calls) != 2 {
		t.Fatal(calls, err)
	}
	large, small := calls[0], calls[1]
	if large.PeakRSS < 40<<20 || large.PeakRSS > 80<<20 {
		t.Errorf("peak RSS %d of a tool that holds 40 MiB", large.PeakRSS)
	}
	if small.PeakRSS < 100<<10 || small.PeakRSS > 20<<20 { // does not include this test's memory
		t.Errorf("peak RSS %d of a small tool", small.PeakRSS)
	}
	if large.System <= 0 || large.User < 0 {
		t.Errorf("user %v, system %v of a tool that read 800 MiB", large.User, large.System)
	}
}

func TestConcurrent(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "/bin/cat", "iptables": "exit 4"})
	ctx, cancel := context.WithCancel(t.Context())
	followed, err := s.Calls(ctx, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	const workers, rounds = 8, 20
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range rounds {
				want := strings.Repeat(fmt.Sprintf("%d.%d ", w, i), 40_000)
				cmd := s.cmd("iptables-restore")
				cmd.Stdin = strings.NewReader(want)
				if got, err := cmd.Output(); err != nil || string(got) != want {
					t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
				}
				if err := s.cmd("iptables", strings.Repeat("x", 3000)).Run(); err == nil {
					t.Error("no exit status")
				}
			}
		})
	}
	var got []Call
	for len(got) < 2*workers*rounds { // they arrive while other calls run
		got = append(got, <-followed)
	}
	all.Wait()
	cancel()
	for call := range followed {
		t.Errorf("a call too many: %+v", call)
	}
	read, next, err := s.Read(0)
	if err != nil || len(read) != len(got) {
		t.Fatalf("%d calls read, %d followed, %v", len(read), len(got), err)
	}
	pids := map[int]bool{}
	for i := range read {
		if read[i].PID != got[i].PID || pids[read[i].PID] {
			t.Errorf("call %d: %d read, %d followed", i, read[i].PID, got[i].PID)
		}
		pids[read[i].PID] = true
	}
	if more, again, err := s.Read(next); len(more) != 0 || again != next || err != nil {
		t.Errorf("after the last: %v, %d, %v", more, again, err)
	}
}

func TestLongArguments(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "printf %s \"$*\" | wc -c"})
	out, err := s.cmd("nft", "short", strings.Repeat("\n", 100_000), "last").Output()
	if err != nil || strings.TrimSpace(string(out)) != fmt.Sprint(100_000+len("short")+len("last")+2) {
		t.Errorf("got %q, %v", out, err)
	}
	if c := only(t, s); !slices.Equal(c.Args, []string{"short", "…"}) {
		t.Errorf("args %.50q", c.Args)
	}
}

func TestFaults(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "cat", "iptables": "echo fine", "nft": "cat"})
	run := func(name string, args ...string) *os.ProcessState {
		cmd := s.cmd(name, args...)
		cmd.Stdin = strings.NewReader("payload")
		_ = cmd.Run()
		return cmd.ProcessState
	}
	if err := errors.Join(s.Fail(1), s.Kill(2)); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		name   string
		args   []string
		exit   int
		signal unix.Signal
		fault  string
	}{
		{"iptables", nil, 0, 0, ""},
		{"iptables-restore", []string{"--version"}, 0, 0, ""},
		{"nft", []string{"list", "tables"}, 0, 0, ""},
		{"nft", []string{"--check", "-f", "-"}, 0, 0, ""},
		{"iptables-restore", []string{"--noflush"}, 1, 0, "fail"},
		{"nft", []string{"-f", "-"}, -1, unix.SIGKILL, "kill"},
		{"iptables-restore", nil, -1, unix.SIGKILL, "kill"},
		{"iptables-restore", nil, 0, 0, ""},
	} {
		state := run(c.name, c.args...)
		calls, _, err := s.Read(0)
		if err != nil || len(calls) != i+1 {
			t.Fatalf("%d calls after %d, %v", len(calls), i+1, err)
		}
		call := calls[i]
		if state.ExitCode() != c.exit || call.ExitCode != c.exit || call.Signal != c.signal || call.Fault != c.fault {
			t.Errorf("call %d, %s %v: exited as %v, recorded as %+v", i, c.name, c.args, state, call)
		}
	}
	if left, err := s.ClearFaults(); left != 0 || err != nil {
		t.Errorf("%d faults left, %v", left, err)
	}
	if err := s.Fail(3); err != nil {
		t.Fatal(err)
	}
	run("iptables-restore")
	if left, err := s.ClearFaults(); left != 2 || err != nil {
		t.Errorf("%d faults left, %v; want 2", left, err)
	}
	if state := run("iptables-restore"); !state.Success() {
		t.Errorf("after ClearFaults: %v", state)
	}
}

// No call of a family that is not measured consumes a fault.
func TestFaultsSpareFamilies(t *testing.T) {
	s := installFor(t, Options{Families: []corev1.IPFamily{corev1.IPv4Protocol}}, map[string]string{"iptables-restore": "cat", "ip6tables-restore": "cat"})
	if err := s.Fail(1); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tool string
		exit int
	}{{"ip6tables-restore", 0}, {"iptables-restore", 1}, {"ip6tables-restore", 0}, {"iptables-restore", 0}} {
		cmd := s.cmd(c.tool)
		cmd.Stdin = strings.NewReader("payload")
		_ = cmd.Run()
		if exit := cmd.ProcessState.ExitCode(); exit != c.exit {
			t.Errorf("%s ended with %d, want %d", c.tool, exit, c.exit)
		}
	}
}

// Calls fail if their input, a pipe or a file, contains a refused text. Other calls do not fail and get their whole
// input.
func TestRefuse(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "cat", "iptables-legacy-restore": "cat", "nft": "cat"})
	lift, err := s.Refuse(" 10.0.0.1 ", "second text")
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a line of the payload\n", 20_000)
	for _, file := range []bool{false, true} {
		for _, c := range []struct {
			name, input string
			refused     string // expected message
			taken       string // input that the tool still gets: the tables before the refused one
		}{
			{"nft", "add ip 10.0.0.12 \n", "", ""},
			{"iptables-restore", long + "-d 10.0.0.1/32 -j\n" + long, "", ""},
			{"iptables-restore", "*nat\n-A A -d 10.0.0.1 -j B\n-A C\nCOMMIT\n", "line 4 failed", ""},
			{"iptables-restore", "*filter\n" + long + "COMMIT\n*nat\n-A A -d 10.0.0.1 -j B\nCOMMIT\n", "line 20005 failed", "*filter\n" + long + "COMMIT\n"},
			{"iptables-restore", long + "second text", "line 20001 failed", ""},
			{"nft", "add\nadd { 10.0.0.1 . tcp }\n", "/dev/stdin:2:", ""},
		} {
			cmd := s.cmd(c.name, "-f", "-")
			cmd.Stdin = strings.NewReader(c.input)
			if file {
				path := filepath.Join(t.TempDir(), "input")
				if err := os.WriteFile(path, []byte(c.input), 0o644); err != nil {
					t.Fatal(err)
				}
				f, err := os.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				cmd.Stdin = f
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, _ := cmd.Output()
			calls, _, err := s.Read(0)
			if err != nil {
				t.Fatal(err)
			}
			call := calls[len(calls)-1]
			if c.refused == "" {
				if string(out) != c.input || call.ExitCode != 0 || call.Fault != "" || call.Stdin != int64(len(c.input)) {
					t.Errorf("%s, file %v: %d of %d bytes, %+v: %s", c.name, file, len(out), len(c.input), call, &stderr)
				}
				continue
			}
			if string(out) != c.taken || call.ExitCode != 1 || call.Fault != "refuse" || !strings.Contains(stderr.String(), c.refused) {
				t.Errorf("%s, file %v: want %q: %d bytes, %+v: %s", c.name, file, c.refused, len(out), call, &stderr)
			}
		}
	}
	if err := lift(); err != nil {
		t.Fatal(err)
	}
	cmd := s.cmd("nft", "-f", "-")
	cmd.Stdin = strings.NewReader("second text")
	if out, err := cmd.Output(); string(out) != "second text" || err != nil {
		t.Errorf("afterwards: %q, %v", out, err)
	}
	if _, err := s.Refuse(); err == nil {
		t.Error("no text at all: no error")
	}
}

// TestFaultsAreTakenOnce lets concurrent calls compete for the same faults.
func TestFaultsAreTakenOnce(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "exit 0"})
	const calls, faults = 24, 7
	if err := s.Fail(faults); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range calls {
		all.Go(func() { _ = s.cmd("iptables-restore").Run() })
	}
	all.Wait()
	read, _, err := s.Read(0)
	if err != nil || len(read) != calls {
		t.Fatal(len(read), err)
	}
	failed := 0
	for _, call := range read {
		failed += call.ExitCode
	}
	if failed != faults {
		t.Errorf("%d calls failed, want %d", failed, faults)
	}
}

func TestNotInstalledRight(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "exit 0"})
	if err := os.Remove(filepath.Join(s.dir, realFolder, "nft")); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd("nft").CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 127 || !strings.Contains(string(out), "real") {
		t.Errorf("got %q, %v", out, err)
	}
}

func TestCost(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "exit 0"})
	for _, size := range []int{0, 3 << 20} {
		if costs, err := s.Cost(t.Context(), 5, size); err != nil || len(costs) != 5 {
			t.Fatal(costs, err)
		}
	}
	if calls, _, err := s.Read(0); len(calls) != 0 || err != nil {
		t.Errorf("Cost recorded its calls: %v, %v", calls, err)
	}
	t.Setenv("PATH", t.TempDir())
	if costs, err := s.Cost(t.Context(), 1, 0); err != nil || len(costs) != 1 {
		t.Errorf("without wc on PATH: %v, %v", costs, err)
	}
}

// The shim's own CPU time is separate from the tool's.
func TestOwnTime(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "exec wc -c", "nft": "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"})
	cmd := s.cmd("iptables-restore")
	cmd.Stdin = bytes.NewReader(make([]byte, 64<<20))
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd("nft", "list").Run(); err != nil {
		t.Fatal(err)
	}
	calls, _, err := s.Read(0)
	if err != nil || len(calls) != 2 {
		t.Fatal(calls, err)
	}
	piped, computes := calls[0], calls[1]
	if piped.Own <= 0 || computes.Own <= 0 || computes.Own > (computes.User+computes.System)/2 {
		t.Errorf("own time %v of a shim that piped 64 MiB, %v beside a tool that took %v", piped.Own, computes.Own, computes.User+computes.System)
	}
}

// An unreadable line ends Calls with an error; no call is lost silently.
func TestCallsFail(t *testing.T) {
	s := install(t, "", map[string]string{"nft": "exit 0"})
	if err := os.WriteFile(s.path(callsFile), []byte("nonsense\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var failed error
	calls, err := s.Calls(t.Context(), func(err error) { failed = err })
	if err != nil {
		t.Fatal(err)
	}
	for range calls {
	}
	if failed == nil || !strings.Contains(failed.Error(), "nonsense") {
		t.Errorf("error %v", failed)
	}
}

// BenchmarkCall measures a call with and without the shim: of a command that does nothing, and of a command that reads
// a payload from a pipe.
func BenchmarkCall(b *testing.B) {
	for _, size := range []int{0, 1 << 20, 30 << 20} {
		payload := make([]byte, size)
		for _, through := range []bool{false, true} {
			b.Run(fmt.Sprintf("shim=%v/bytes=%d", through, size), func(b *testing.B) {
				tool := "/bin/true"
				if size > 0 {
					tool = "/bin/cat"
				}
				s := install(b, "", map[string]string{"iptables-restore": tool})
				null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
				if err != nil {
					b.Fatal(err)
				}
				defer null.Close()
				for b.Loop() {
					cmd := exec.Command(tool)
					if through {
						cmd = s.cmd("iptables-restore")
					}
					if size > 0 {
						cmd.Stdin = bytes.NewReader(payload)
					}
					cmd.Stdout = null
					if err := cmd.Run(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// Tools are never taken from the working directory, whatever PATH contains.
func TestRelativePathEntries(t *testing.T) {
	const name = "synclab-test-tool"
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := &Shim{dir: t.TempDir()}
	for _, path := range []string{".", "", ":", "./", ".:" + t.TempDir()} {
		t.Setenv("PATH", path)
		if found, err := s.find(name); err == nil {
			t.Errorf("PATH %q: found %s", path, found)
		}
	}
	t.Setenv("PATH", ".:"+dir)
	if found, err := s.find(name); err != nil || found != filepath.Join(dir, name) {
		t.Errorf("PATH with the folder itself: %q, %v", found, err)
	}
}

// Inputs are kept byte for byte; calls that write nothing keep none.
func TestKeepInputs(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "/bin/cat", "iptables-save": "/bin/cat"})
	if err := s.KeepInputs(); err != nil {
		t.Fatal(err)
	}
	payload := strings.Repeat("-A KUBE-SERVICES\n", 20_000)
	for _, tool := range []string{"iptables-restore", "iptables-save"} {
		cmd := s.cmd(tool)
		cmd.Stdin = onlyReader{strings.NewReader(payload)}
		if out, err := cmd.Output(); err != nil || string(out) != payload {
			t.Fatalf("%s got %d bytes, %v; want %d", tool, len(out), err, len(payload))
		}
	}
	calls, _, err := s.Read(0)
	if err != nil || len(calls) != 2 {
		t.Fatal(calls, err)
	}
	if text, err := s.Input(calls[0]); err != nil || string(text) != payload || calls[0].Stdin != int64(len(payload)) {
		t.Errorf("%d bytes kept, %v, %d counted; want %d", len(text), err, calls[0].Stdin, len(payload))
	}
	if _, err := s.Input(calls[1]); err == nil {
		t.Error("the input of a call that writes nothing was kept")
	}
}

// A subject can write in the shim's folder. Links that it makes there lead to no file outside of it: nothing there is read,
// written or removed.
// A subject may write in the shim's folder. No name there is the program that the lab and other runs start.
func TestProgramIsACopy(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "cat", "iptables-save": "cat"})
	program, err := os.Stat(s.command)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"iptables-restore", "iptables-save"} {
		if copied, err := os.Stat(filepath.Join(s.Path(), name)); err != nil || os.SameFile(copied, program) || copied.Size() != program.Size() {
			t.Errorf("%s: %v, %v", name, copied, err)
		}
	}
}

// A subject can make files of any size in the shim's folder. None is read into memory.
func TestHugeFilesOfASubject(t *testing.T) {
	s := install(t, "", map[string]string{"iptables-restore": "cat"})
	if err := s.KeepInputs(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inputs/1", callsFile} {
		if err := errors.Join(os.WriteFile(s.path(name), nil, 0o600), os.Truncate(s.path(name), 1<<40)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(s.path("many"), bytes.Repeat([]byte("{}\n"), 10), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Input(Call{PID: 1}); err == nil || !strings.Contains(err.Error(), "larger than 1024 MiB") {
		t.Errorf("an input of 1 TiB: %v", err)
	}
	if _, _, err := s.Read(0); err == nil || !strings.Contains(err.Error(), "larger than 256 MiB") {
		t.Errorf("1 TiB of calls: %v", err)
	}
	if err := os.Rename(s.path("many"), s.path(callsFile)); err != nil {
		t.Fatal(err)
	}
	if calls, _, err := s.Read(0); err == nil || len(calls) > 0 {
		t.Errorf("lines that are no calls: %v, %v", calls, err)
	}
}

func TestLinksOfASubject(t *testing.T) {
	outside := t.TempDir()
	kept := filepath.Join(outside, "fail-1")
	if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := install(t, "", map[string]string{"iptables-restore": "cat"})
	if err := s.KeepInputs(); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"inputs/1": kept, "inputs/2": "/dev/zero", faultsFolder: outside} {
		if err := os.Symlink(to, s.path(name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, pid := range []int{1, 2} {
		if text, err := s.Input(Call{PID: pid}); err == nil {
			t.Errorf("the input of call %d was read through a link: %q", pid, text)
		}
	}
	if err := s.Fail(1); err == nil {
		t.Error("a fault was planted through a link")
	}
	if _, err := s.Refuse("text"); err == nil {
		t.Error("a text was written through a link")
	}
	if n, err := s.ClearFaults(); err == nil {
		t.Errorf("%d faults were removed through a link", n)
	}
	if err := errors.Join(os.Remove(s.path(callsFile)), os.Symlink(kept, s.path(callsFile))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Read(0); err == nil {
		t.Errorf("calls were read through a link: %v", err)
	}
	if err := errors.Join(os.RemoveAll(s.path(realFolder)), os.Symlink(outside, s.path(realFolder))); err != nil {
		t.Fatal(err)
	}
	if err := s.put("new", "/bin/true"); err == nil {
		t.Error("a tool was installed through a link")
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "kept" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
	if entries, err := os.ReadDir(outside); err != nil || len(entries) != 1 {
		t.Errorf("outside: %v, %v", entries, err)
	}
}
