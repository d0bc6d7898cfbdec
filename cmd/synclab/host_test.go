package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"synclab/bench/lab/netns"
	"synclab/bench/subject"
)

// hostMark is in the environment of every process that a test of the host starts.
const hostMark = "SYNCLAB_TEST_HOST_MARK"

// restless matches sysctls whose values change by themselves, or by other programs.
var restless = regexp.MustCompile(`^(kernel/random/|kernel/ns_last_pid|kernel/pty/nr|kernel/perf_|kernel/sched_domain|` +
	`fs/(dentry-state|file-nr|inode-|aio-nr|quota/)|net/netfilter/nf_conntrack_count|vm/stat_refresh)`)

// hostState lists what a run could change on the machine: sysctls, cgroups, mounts, links, addresses, routes, rules,
// temporary files, and processes with the mark.
func hostState(t *testing.T, temporary, mark string) map[string]string {
	t.Helper()
	state := map[string]string{}
	visit := func(root string, take func(name, path string, entry fs.DirEntry)) {
		_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil {
				take(strings.TrimPrefix(path, root+"/"), path, entry)
			}
			return nil // this user cannot change what it cannot read
		})
	}
	visit("/proc/sys", func(name, path string, entry fs.DirEntry) {
		if info, err := entry.Info(); err != nil || entry.IsDir() || info.Mode().Perm()&0o444 == 0 || restless.MatchString(name) {
			return
		}
		if text, err := os.ReadFile(path); err == nil {
			state["sysctl "+name] = string(text)
		}
	})
	visit("/sys/fs/cgroup", func(name, path string, entry fs.DirEntry) {
		switch {
		case entry.IsDir():
			state["cgroup "+name] = ""
		case entry.Name() == "cgroup.subtree_control":
			text, _ := os.ReadFile(path)
			state["cgroup "+name] = string(text)
		}
	})
	visit(temporary, func(name, _ string, _ fs.DirEntry) { state["temporary "+name] = "" })
	for what, file := range map[string]string{"mounts": "/proc/self/mountinfo", "table": "/proc/net/ip_tables_names", "table of IPv6": "/proc/net/ip6_tables_names"} {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			state[what+" "+line] = ""
		}
	}
	if nft, err := exec.LookPath("nft"); err == nil {
		rules, _ := exec.Command(nft, "list", "ruleset").Output()
		state["nft rules"] = string(rules)
	}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		addresses, _ := netlink.AddrList(link, netlink.FAMILY_ALL)
		routes, _ := netlink.RouteList(link, netlink.FAMILY_ALL)
		state["link "+link.Attrs().Name] = fmt.Sprint(link.Type(), link.Attrs().Flags, link.Attrs().MTU, addresses, routes)
	}
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(hostMark+"="+mark)) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			state["process "+filepath.Base(filepath.Dir(path))] = string(command)
		}
	}
	return state
}

// unlike returns the keys whose values differ.
func unlike(a, b map[string]string) []string {
	var keys []string
	for key := range maps.Keys(a) {
		if other, there := b[key]; !there || other != a[key] {
			keys = append(keys, key)
		}
	}
	for key := range b {
		if _, there := a[key]; !there {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// A run does not change the host, even if it is killed. SYNCLAB_TEST_HOST=whole tests every subject, and faults.
func TestRunLeavesTheHost(t *testing.T) {
	skipShort(t)
	whole := os.Getenv("SYNCLAB_TEST_HOST") == "whole"
	temporary, out, mark := t.TempDir(), t.TempDir(), fmt.Sprint(os.Getpid(), "-", time.Now().UnixNano())
	program := func(args ...string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], args...)
		cmd.Env = append(os.Environ(), envProgram+"=1", "TMPDIR="+temporary, hostMark+"="+mark)
		return cmd
	}
	subjects, soaked, scenarios := "synclab/nftables,synclab/iptables-legacy", "synclab/nftables", "1"
	if whole {
		subjects, soaked, scenarios = everySubject(), everySubject(), "2"
	}
	runs := [][]string{
		{"compare", "cold-start", noWaits, "--services", "10", "--reps", "1", "--subjects", subjects, "--out", filepath.Join(out, "compare")},
		{"soak", "--seeds", scenarios, "--duration", "5s", "--services", "30", "--subjects", soaked, "--minimize", "0s", "--out", filepath.Join(out, "soak")},
	}
	if whole {
		runs = append(runs, []string{"run", "./testdata/faults.yaml", "--reps", "1", "--feed", "api", "--subjects", everySubject(), "--out", filepath.Join(out, "faults")})
	}

	before := hostState(t, temporary, mark)
	if len(before) < 100 {
		t.Fatalf("only %d things of this host were found", len(before))
	}
	t.Logf("%d things of this host are compared", len(before))
	check := func(after string) {
		t.Helper()
		// Changes by other processes on this machine disappear by themselves.
		left := unlike(before, hostState(t, temporary, mark))
		for deadline := time.Now().Add(2 * time.Minute); len(left) > 0 && time.Now().Before(deadline); {
			time.Sleep(time.Second)
			now := unlike(before, hostState(t, temporary, mark))
			left = slices.DeleteFunc(left, func(key string) bool { return !slices.Contains(now, key) })
		}
		for _, key := range left {
			t.Errorf("after %s: %s differs from before", after, key)
		}
	}
	for _, args := range runs {
		text, err := program(args...).CombinedOutput()
		if err != nil && strings.Contains(string(text), netns.ErrUnavailable.Error()) && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
			t.Skip(string(text))
		}
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		check(args[0])
	}

	// Killed in the middle, a run and serve leave folders, which the next run removes.
	cmd := program("run", "steady-churn", "--services", "10", "--reps", "20", "--feed", "api", "--subjects", "synclab/nftables", "--out", filepath.Join(out, "killed"))
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	serve := program("serve", "--services", "10")
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	begun := func() bool {
		folders, _ := filepath.Glob(filepath.Join(temporary, "synclab-tmp-*", "lab", "subject.log"))
		kubeconfigs, _ := filepath.Glob(filepath.Join(temporary, "synclab-tmp-*", "kubeconfig"))
		return len(folders) > 0 && len(kubeconfigs) > 0
	}
	for deadline := time.Now().Add(time.Minute); !begun() && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if !begun() {
		t.Error("the processes that are to be killed have not begun")
	}
	for _, killed := range []*exec.Cmd{cmd, serve} {
		_ = killed.Process.Kill()
		_ = killed.Wait()
	}
	if !begun() {
		t.Error("the killed processes left nothing: this shows nothing")
	}
	text, err := program("run", "cold-start", noWaits, "--services", "10", "--reps", "1", "--subjects", "synclab/nftables", "--out", filepath.Join(out, "next")).CombinedOutput()
	if err != nil {
		t.Fatalf("the run after it: %v\n%s", err, text)
	}
	check("kill -9 and the next run")
}

// everySubject returns the subjects that this machine has the tools for.
func everySubject() string {
	var names []string
	for _, subject := range subject.All() {
		if subject.Available() == nil {
			names = append(names, subject.Name)
		}
	}
	return strings.Join(names, ",")
}
