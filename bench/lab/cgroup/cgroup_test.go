package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// allocates makes the test binary a process that takes memory as soon as its standard input ends.
const allocates = "SYNCLAB_TEST_ALLOCATES"

func allocate() {
	_, _ = io.Copy(io.Discard, os.Stdin)
	bytes.Repeat([]byte{1}, 256<<20)
	fmt.Println("allocated")
}

func TestMain(m *testing.M) {
	if os.Getenv(allocates) != "" {
		allocate()
		return
	}
	os.Exit(netns.TestMain(m))
}

// allocating starts such a process. wait lets it allocate, and returns its output and its end.
func allocating(t *testing.T) (pid int, wait func() (string, error)) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), allocates+"=1")
	var out bytes.Buffer
	cmd.Stdout = &out
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd.Process.Pid, func() (string, error) {
		in.Close()
		err := cmd.Wait()
		return out.String(), err
	}
}

// Control groups of a real kernel, that of a guest: a process over its limit is killed, and afterwards the groups are
// as before. So they are after a killed run.
func TestGroupsOfTheKernel(t *testing.T) {
	if os.Getenv("SYNCLAB_KERNEL") == "" {
		t.Skip("needs control groups that nothing else uses, those of a guest: SYNCLAB_KERNEL is not set")
	}
	parent, err := accounting()
	if err != nil {
		t.Fatal(err)
	}
	accounted := func(group string) string {
		text, err := os.ReadFile(filepath.Join(group, "cgroup.subtree_control"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := accounted(parent)
	unchanged := func(after string) {
		t.Helper()
		if left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*")); len(left) > 0 || accounted(parent) != before {
			t.Errorf("after %s: groups %q, subtree_control %q; want none, %q", after, left, accounted(parent), before)
		}
	}

	pid, wait := allocating(t)
	if _, err := Limit(pid, 1<<30); err != nil {
		t.Fatal(err)
	}
	// The run was killed: its process ended, its group stays.
	if out, err := wait(); err != nil || out != "allocated\n" {
		t.Errorf("below its limit: %q, %v", out, err)
	}
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	old := time.Now().Add(-2 * groupAge)
	if len(left) != 1 {
		t.Fatalf("groups %q; want one", left)
	}
	if err := os.Chtimes(left[0], old, old); err != nil {
		t.Fatal(err)
	}
	Sweep(parent)
	unchanged("a killed run")

	pid, wait = allocating(t)
	end, err := Limit(pid, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if out, err := wait(); !errors.As(err, &exit) || exit.ExitCode() != -1 {
		t.Errorf("over its limit: %q, %v", out, err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	unchanged("the limit")

	pid, wait = allocating(t)
	end, err = Limit(pid, 32<<20)
	if err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	unchanged("the end of a limit")
	if out, err := wait(); err != nil || out != "allocated\n" {
		t.Errorf("after the limit: %q, %v", out, err)
	}

	crowded(t, parent, accounted)
	unchanged("a refusal")
}

// crowded checks that a group with processes gets no groups below it: the kernel refuses that.
func crowded(t *testing.T, parent string, accounted func(string) string) {
	t.Helper()
	if err := write(parent, "cgroup.subtree_control", "+memory"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := write(parent, "cgroup.subtree_control", "-memory"); err != nil {
			t.Error(err)
		}
	}()
	group := filepath.Join(parent, "crowded")
	pid, wait := allocating(t)
	if err := errors.Join(os.Mkdir(group, 0o755), write(group, "cgroup.procs", fmt.Sprint(pid))); err != nil {
		t.Fatal(err)
	}
	if _, err := newGroup(group); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a group below one with processes: %v; want %v", err, unix.EBUSY)
	}
	if left, _ := filepath.Glob(filepath.Join(group, groupPrefix+"*")); len(left) > 0 || strings.TrimSpace(accounted(group)) != "" {
		t.Errorf("the refused group left %q, %q", left, accounted(group))
	}
	if _, err := wait(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(group); err != nil {
		t.Error(err)
	}
}

// Two runs have separate cgroups. Those of killed runs are removed, and the parent is restored with the last one. A
// folder stands for a cgroup: its control file keeps the last write.
func TestGroups(t *testing.T) {
	parent := t.TempDir()
	control := filepath.Join(parent, "cgroup.subtree_control")
	said := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(control); err != nil || string(text) != want {
			t.Errorf("subtree_control: %q, %v; want %q", text, err, want)
		}
	}
	old := time.Now().Add(-time.Hour)
	killed, strangers := filepath.Join(parent, groupAddedPrefix+"killed"), filepath.Join(parent, "strangers")
	if err := errors.Join(os.WriteFile(control, []byte("cpu"), 0o600), os.Mkdir(killed, 0o755), os.Mkdir(strangers, 0o755), os.Chtimes(killed, old, old), os.Chtimes(strangers, old, old)); err != nil {
		t.Fatal(err)
	}
	first, err := newGroup(parent)
	if err != nil {
		t.Fatal(err)
	}
	said("+memory")
	if _, err := os.Stat(killed); err == nil {
		t.Error("the group of a killed run still exists")
	}
	second, err := newGroup(parent)
	if err != nil || second == first {
		t.Fatalf("%s, %v", second, err)
	}
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the group of a running run: %v", err)
	}
	if err := removeGroup(first); err != nil { // the group that enabled the parent's memory accounting ends first
		t.Fatal(err)
	}
	said("+memory")
	bound := filepath.Join(strangers, "memory.max")
	if err := errors.Join(os.WriteFile(bound, []byte("1000\n"), 0o600), removeGroup(second)); err != nil {
		t.Fatal(err)
	}
	said("+memory")                                                                           // another group has a limit
	if err := os.Mkdir(filepath.Join(parent, groupJoinedPrefix+"other"), 0o755); err != nil { // needs no accounting
		t.Fatal(err)
	}
	third, err := newGroup(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(bound, []byte("max\n"), 0o600), removeGroup(third)); err != nil {
		t.Fatal(err)
	}
	said("-memory")
}

// The group is found on machines with version 2 alone or beside version 1, and in containers that see a part of the groups.
func TestOwnPath(t *testing.T) {
	const v1 = "30 20 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
	mount := func(root, at string) string {
		return "31 20 0:26 " + root + " " + at + " rw,nosuid - cgroup2 cgroup2 rw\n"
	}
	for _, test := range []struct{ name, mounts, groups, want string }{
		{"systemd", mount("/", "/sys/fs/cgroup"), "0::/user.slice/session-3.scope\n", "/sys/fs/cgroup/user.slice/session-3.scope"},
		{"both versions", v1 + mount("/", "/sys/fs/cgroup/unified"), "4:memory:/a\n0::/\n", "/sys/fs/cgroup/unified"},
		{"container", mount("/", "/sys/fs/cgroup"), "0::/\n", "/sys/fs/cgroup"},
		{"container with the host's names", mount("/docker/1", "/sys/fs/cgroup"), "0::/docker/1/init\n", "/sys/fs/cgroup/init"},
		{"outside of the mount", mount("/docker/1", "/sys/fs/cgroup"), "0::/docker/2\n", ""},
		{"second mount", mount("/docker/1", "/one") + mount("/", "/all"), "0::/docker/2\n", "/all/docker/2"},
		{"version 1", v1, "4:memory:/a\n", ""},
		{"not mounted", v1, "0::/a\n", ""},
	} {
		if path, found := ownPath(test.mounts, test.groups); path != test.want || found != (test.want != "") {
			t.Errorf("%s: %q, %v; want %q", test.name, path, found, test.want)
		}
	}
}

// A joined group has this process until it leaves.
func TestJoin(t *testing.T) {
	if err := MayJoin(); err != nil {
		t.Skip(err)
	}
	before, err := Own()
	if err != nil {
		t.Fatal(err)
	}
	group, leave, err := Join()
	if err != nil {
		t.Fatal(err)
	}
	if own, err := Own(); err != nil || own != group || filepath.Dir(own) != before {
		t.Errorf("in %s, %v; want %s", own, err, group)
	}
	if err := leave(); err != nil {
		t.Fatal(err)
	}
	if own, err := Own(); err != nil || own != before {
		t.Errorf("after: in %s, %v; want %s", own, err, before)
	}
	if _, err := os.Stat(group); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is left: %v", group, err)
	}
}
