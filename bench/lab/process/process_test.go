package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// envChild turns this test binary into a child process; its value names the task.
const envChild = "SYNCLAB_PROCESS_CHILD"

func TestMain(m *testing.M) {
	if what := os.Getenv(envChild); what != "" {
		child(what)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// child does its task, prints "ready", and waits.
func child(what string) {
	kind, amount, _ := strings.Cut(what, ":")
	n, _ := strconv.Atoi(amount)
	switch kind {
	case "burn":
		burn(time.Duration(n) * time.Millisecond)
	case "hold":
		grown := make([]byte, n<<20)
		for i := range grown {
			grown[i] = 1
		}
		if grown[len(grown)/2] != 1 {
			os.Exit(1)
		}
	}
	fmt.Println("ready")
	time.Sleep(time.Hour) // without cgo, an empty select is a deadlock, which ends the program
}

// burn uses d of CPU time.
func burn(d time.Duration) {
	var used unix.Rusage
	for x := 0; ; x++ {
		if x%1e6 == 0 {
			_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
			if time.Duration(used.Utime.Nano()+used.Stime.Nano()) > d {
				return
			}
		}
	}
}

// start runs a command with its output in a fifo. The test reads the fifo line by line, so that it can wait for output.
func start(t *testing.T, opts Options) (*Process, *bufio.Scanner) {
	t.Helper()
	opts.LogFile = filepath.Join(t.TempDir(), "log")
	if err := unix.Mkfifo(opts.LogFile, 0o600); err != nil {
		t.Fatal(err)
	}
	fifo, err := os.OpenFile(opts.LogFile, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { fifo.Close() })
	p, err := Start(context.Background(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return p, bufio.NewScanner(fifo)
}

func self(t *testing.T, what string) Options {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{Path: exe, Env: append(os.Environ(), envChild+"="+what)}
}

func shell(script string) Options { return Options{Path: "/bin/sh", Args: []string{"-c", script}} }

func next(t *testing.T, lines *bufio.Scanner) string {
	t.Helper()
	if !lines.Scan() {
		t.Fatalf("the child printed nothing: %v", lines.Err())
	}
	return lines.Text()
}

func TestUnexpectedExit(t *testing.T) {
	opts := shell("i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i; done; echo last words >&2; exit 3")
	opts.LogFile, opts.Name = filepath.Join(t.TempDir(), "log"), "the-subject"
	if err := os.WriteFile(opts.LogFile, []byte("of another one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	text := fmt.Sprint(p.Err())
	for _, want := range []string{"the-subject exited unexpectedly (exit status 3)", "\nline 20\n", "\nlast words"} {
		if !strings.Contains(text, want) {
			t.Errorf("missing in the error: %q: %s", want, text)
		}
	}
	if strings.Contains(text, "line 19") {
		t.Errorf("more than the last lines: %s", text)
	}
	if all := p.Tail(1000); strings.Contains(all, "another") || !strings.HasPrefix(all, "line 1\n") {
		t.Errorf("Tail gives %q", all)
	}
	if err := p.Stop(t.Context()); err == nil {
		t.Error("Stop after an unexpected exit: no error")
	}
	if code := p.State().ExitCode(); code != 3 {
		t.Errorf("exit code %d", code)
	}
}

// A process reads its standard input, which stays open.
func TestStdin(t *testing.T) {
	opts := shell("while read line; do echo read $line; done; echo closed")
	opts.Stdin = "one\ntwo\n"
	p, lines := start(t, opts)
	for _, want := range []string{"read one", "read two"} {
		if got := next(t, lines); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
	if err := p.Stop(t.Context()); err != nil { // its input had not ended, so that it still ran
		t.Error(err)
	}
}

func TestExitZeroIsUnexpected(t *testing.T) {
	opts := shell("exit 0")
	opts.LogFile = filepath.Join(t.TempDir(), "log")
	p, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if p.Err() == nil || !strings.Contains(p.Err().Error(), "nothing") {
		t.Errorf("got %v", p.Err())
	}
}

func TestStop(t *testing.T) {
	p, lines := start(t, shell("trap 'exit 0' TERM; echo ready; while :; do sleep 1000 & wait; done"))
	next(t, lines)
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.Err() != nil || p.State().ExitCode() != 0 {
		t.Errorf("err %v, state %v", p.Err(), p.State())
	}
	gone(t, p)
	if err := p.Stop(t.Context()); err != nil {
		t.Errorf("a second Stop: %v", err)
	}
	p.Kill()
}

func TestStopTakesTheKill(t *testing.T) {
	opts := shell("trap '' TERM; echo ready; while :; do sleep 1000; done")
	opts.Grace = time.Millisecond
	p, lines := start(t, opts)
	next(t, lines)
	if err := p.Stop(t.Context()); err == nil || !strings.Contains(err.Error(), "was killed") {
		t.Errorf("got %v", err)
	}
	if status := p.State().Sys().(interface{ Signaled() bool }); !status.Signaled() {
		t.Errorf("ended as %v", p.State())
	}
	gone(t, p)
}

func TestStopWithContext(t *testing.T) {
	opts := shell("trap '' TERM; echo ready; while :; do sleep 1000; done")
	opts.Grace = time.Hour
	p, lines := start(t, opts)
	next(t, lines)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(ctx); err == nil {
		t.Error("no error")
	}
	gone(t, p)
}

func TestContextEnds(t *testing.T) {
	opts := shell("while :; do sleep 1000; done")
	opts.LogFile = filepath.Join(t.TempDir(), "log")
	ctx, cancel := context.WithCancel(t.Context())
	p, err := Start(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-p.Done()
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

func TestLeavesNothingBehind(t *testing.T) {
	p, lines := start(t, shell("sleep 1000 & echo $!; exit 1"))
	next(t, lines)
	<-p.Done()
	gone(t, p)
}

// gone fails if a process of the group is alive. A killed process stays a zombie until its new parent reaps it.
func gone(t *testing.T, p *Process) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		u, err := readUsage(pid)
		if err != nil || u.group != p.PID() || u.zombie {
			continue
		}
		// SIGKILL was sent, but the kernel may not have finished.
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		defer unix.Close(fd)
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000); n != 1 {
			t.Errorf("process %d of the group is alive: %v", pid, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if _, err := Start(t.Context(), Options{Path: "/no/such/command", LogFile: log}); err == nil {
		t.Error("no error without a command")
	}
	if _, err := Start(t.Context(), Options{Path: "/bin/true", LogFile: filepath.Join(log, "no", "folder")}); err == nil {
		t.Error("no error without a folder for the log")
	}
}

func TestCPU(t *testing.T) {
	const burnt = 150 * time.Millisecond
	// The child's own time is exact.
	p, lines := start(t, self(t, "burn:150"))
	next(t, lines)
	used, err := p.CPU()
	if err != nil || used < burnt {
		t.Errorf("CPU %v, %v; it burnt %v", used, err, burnt)
	}
	if err := p.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	// After the exit, the kernel reports microseconds.
	if after, err := p.CPU(); err != nil || after < used.Truncate(time.Microsecond) {
		t.Errorf("CPU %v, %v after the end; %v before", after, err, used)
	}
	if m, err := p.Memory(); m != 0 || err != nil {
		t.Errorf("memory %d, %v after the end", m, err)
	}
}

func TestCPUOfChildren(t *testing.T) {
	exe := self(t, "")
	const burnt = 150 * time.Millisecond
	t.Run("living", func(t *testing.T) {
		opts := shell(envChild + "=burn:150 " + exe.Path + " & wait")
		p, lines := start(t, opts)
		next(t, lines)
		if used, err := p.CPU(); err != nil || used < burnt-2*tick {
			t.Errorf("CPU %v, %v; its child burnt %v", used, err, burnt)
		}
	})
	t.Run("reaped", func(t *testing.T) {
		opts := shell(envChild + "=burn:150 " + exe.Path + " & child=$!; read line < gate; kill $child; wait; echo reaped; sleep 1000")
		opts.Dir = t.TempDir()
		gate := filepath.Join(opts.Dir, "gate")
		if err := unix.Mkfifo(gate, 0o600); err != nil {
			t.Fatal(err)
		}
		p, lines := start(t, opts)
		next(t, lines)
		if err := os.WriteFile(gate, []byte("go on\n"), 0); err != nil {
			t.Fatal(err)
		}
		next(t, lines)
		if used, err := p.CPU(); err != nil || used < burnt-2*tick {
			t.Errorf("CPU %v, %v; its child burnt %v", used, err, burnt)
		}
	})
}

func TestMemory(t *testing.T) {
	const held = 64 << 20
	const most = 5 * held // with the race detector's shadow memory
	p, lines := start(t, self(t, "hold:64"))
	next(t, lines)
	peak, err := p.PeakRSS()
	if err != nil || peak < held || peak > most {
		t.Errorf("peak %d, %v; it holds %d", peak, err, held)
	}
	if now, err := p.Memory(); err != nil || now < held || now > most {
		t.Errorf("memory %d, %v; it holds %d", now, err, held)
	}

	parent, lines := start(t, shell(envChild+"=hold:64 "+p.opts.Path+" & wait"))
	next(t, lines)
	if now, err := parent.Memory(); err != nil || now < held {
		t.Errorf("memory %d, %v; its child holds %d", now, err, held)
	}
	if peak, err := parent.PeakRSS(); err != nil || peak > held/2 {
		t.Errorf("peak %d, %v: a child's memory is in it", peak, err)
	}
	parent.Kill()
	if _, err := parent.PeakRSS(); err == nil {
		t.Error("a peak after the end")
	}
}

// A process has a session of its own, without the terminal of its parent.
func TestOwnSession(t *testing.T) {
	opts := shell(`read -r _ _ _ _ _ session _ </proc/self/stat; [ "$session" = $$ ]`)
	opts.LogFile = filepath.Join(t.TempDir(), "log")
	p, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if status := p.State().ExitCode(); status != 0 {
		t.Errorf("status %d: the process is in another session", status)
	}
}

// Of a log of any size, the errors at its end are read.
func TestErrorsOfAHugeLog(t *testing.T) {
	opts := shell(`truncate -s 1T "$LOG"; echo >>"$LOG"; echo "fatal: last" >>"$LOG"`)
	opts.LogFile = filepath.Join(t.TempDir(), "subject.log")
	opts.Env = append(os.Environ(), "LOG="+opts.LogFile)
	p, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	errs := Errors{Most: 3}
	if p.Errors(&errs); !slices.Equal(errs.Lines(), []string{"fatal: last"}) {
		t.Errorf("%q", errs.Lines())
	}
}

// A subject can write in the folder of its log. A restarted subject's output goes through no link that it left there.
func TestLogIsNoLink(t *testing.T) {
	dir := t.TempDir()
	outside, log := filepath.Join(t.TempDir(), "kept"), filepath.Join(dir, "subject.log")
	if err := errors.Join(os.WriteFile(outside, nil, 0o600), os.Symlink(outside, log)); err != nil {
		t.Fatal(err)
	}
	opts := shell("echo written")
	opts.LogFile = log
	p, err := Start(t.Context(), opts)
	if err == nil {
		<-p.Done()
		t.Error("a link was accepted as log")
	}
	if text, err := os.ReadFile(outside); err != nil || len(text) > 0 {
		t.Errorf("the file outside: %q, %v", text, err)
	}
}
