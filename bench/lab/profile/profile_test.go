package profile

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"
)

// script is what perf prints: a sample of a tool in the kernel, one of a Go program, events, and lost samples.
const script = `iptables restor 812/813 100.000000500: 
	ffffffff81a2b3c4 nft_chain_validate ([kernel.kallsyms])
	ffffffff81000010 do_syscall_64 ([kernel.kallsyms])
	           171e6 [unknown] (/usr/sbin/xtables-nft-multi)
	ffffffff00000000 [unknown] ([unknown])

kube-proxy  700/701  101.000000000: PERF_RECORD_LOST lost 53
kube-proxy  700/705 101.250000000: 
	           171e6 main.(*T).plan(...) (/tmp/kube-proxy)
	           171e7 main.main (/tmp/kube-proxy)

`

func TestReadScript(t *testing.T) {
	var got []Sample
	lost, err := readScript(strings.NewReader(script), func(s Sample) { got = append(got, s) })
	if err != nil || lost != 53 || len(got) != 2 {
		t.Fatalf("%d samples, %d lost, %v; want 2 and 53", len(got), lost, err)
	}
	if s := got[0]; s.Command != "iptables restor" || s.PID != 812 || !s.At.Equal(time.Unix(100, 500)) || len(s.Stack) != 4 || !s.Stack[1].Kernel || s.Stack[2].Kernel || s.Stack[3].Kernel {
		t.Errorf("first sample %+v", s)
	}
	if f := got[1].Stack[0]; f.Function != "main.(*T).plan(...)" || f.Object != "/tmp/kube-proxy" {
		t.Errorf("frame %+v", f)
	}
	for _, bad := range []string{"nonsense\n", "\tdeadbeef f (o)\n", "a 1/1 1.0: \n\tnothex f (o)\n"} {
		if _, err := readScript(strings.NewReader(bad), func(Sample) {}); err == nil || !strings.Contains(err.Error(), "line ") {
			t.Errorf("%q: %v; want an error that names the line", bad, err)
		}
	}
}

// Samples are filed by the time windows of syncs. The lab's own processes are left out, and so are frames that a stack
// without frame pointers made up.
func TestProfileLabels(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	p := New(Cut{
		Subject: "kube-proxy/nftables", PIDs: []int{700}, Shims: map[int]bool{9: true},
		Windows: []Window{{"full", at(100), at(110)}, {"partial", at(120), at(121)}}, Cold: Window{From: at(90), To: at(115)},
	})
	kernel := Frame{Function: "nft_chain_validate", Object: "[kernel.kallsyms]", Kernel: true}
	user := Frame{Function: "parse", Object: "/usr/sbin/nft"}
	p.Add(Sample{at(105), 812, "nft", []Frame{kernel, user, {Function: "made up", Object: "/usr/sbin/nft"}}})
	p.Add(Sample{at(105), 812, "nft", []Frame{kernel, user}})
	p.Add(Sample{at(120), 700, "thread", []Frame{{Function: "main.plan", Object: "/kube-proxy"}, {Function: "main.main", Object: "/kube-proxy"}}})
	p.Add(Sample{at(130), 812, "nft", []Frame{user}})
	p.Add(Sample{at(105), 9, "nft", []Frame{kernel}})
	content, err := p.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	read, err := pprof.Parse(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range read.Sample {
		var stack []string
		for _, l := range s.Location {
			stack = append(stack, l.Line[0].Function.Name)
		}
		line := strings.Join(stack, ",")
		for _, name := range []string{LabelKind, LabelStage, LabelOrigin, LabelProcess} {
			line += " " + strings.Join(s.Label[name], "")
		}
		got = append(got, line)
	}
	slices.Sort(got)
	want := []string{
		"main.plan,main.main partial  proxier kube-proxy/nftables",
		"nft_chain_validate,parse full cold start kernel nft",
		"parse between syncs  tool nft",
	}
	if !reflect.DeepEqual(got, want) || p.Samples != 4 {
		t.Errorf("%d samples %q; want 4 in %q", p.Samples, got, want)
	}
}

// The test binary is a Go program: its functions have names without a symbol table.
func TestNamesOfStrippedGo(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pc := reflect.ValueOf(TestNamesOfStrippedGo).Pointer()
	file, err := elf.Open(exe)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if file.Type != elf.ET_EXEC {
		t.Skip("the test binary is position-independent, so that its addresses are not those of the file")
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && uint64(pc) >= p.Vaddr && uint64(pc) < p.Vaddr+p.Filesz {
			want := runtime.FuncForPC(pc).Name()
			if got := (symbols{}).name(exe, uint64(pc)-p.Vaddr+p.Off); got != want {
				t.Errorf("named %q, want %q", got, want)
			}
			return
		}
	}
	t.Fatal("no segment has the function")
}

// Functions of a stripped C program are named by where they start.
func TestStartsOfStrippedC(t *testing.T) {
	path, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	o, err := openObject(path)
	if err != nil {
		t.Fatal(err)
	}
	if o.golang != nil || len(o.starts) < 2 || len(o.segments) == 0 {
		t.Skipf("%s has no index of its functions", path)
	}
	s, at := o.segments[0], o.starts[1]
	if at < s.Vaddr || at >= s.Vaddr+s.Filesz {
		t.Skipf("function 1 of %s is in another segment", path)
	}
	name := (symbols{}).name(path, at+1-s.Vaddr+s.Off)
	if want := (symbols{}).name(path, at-s.Vaddr+s.Off); name != want || !strings.HasPrefix(name, filepath.Base(path)+"+0x") {
		t.Errorf("a place in the function is named %q, its start %q", name, want)
	}
}

// A recording has the process from its first instruction on, and its children.
func TestRecord(t *testing.T) {
	if err := Check(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	gate, err := NewGate(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	const spin = `i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; `
	path, args := gate.Before("/bin/sh", []string{"-c", spin + "sh -c '" + spin + "'; true"})
	cmd := exec.Command(path, args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sees, _ := SeesKernel(os.Geteuid() != 0)
	before := time.Now()
	r, err := Start(t.Context(), Options{Path: filepath.Join(dir, "perf.data"), PID: cmd.Process.Pid, Kernel: sees})
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.Skip(err) // a container may forbid it
	}
	if err := gate.Open(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	after, own, child := time.Now(), 0, 0
	_, err = r.Samples(t.Context(), func(s Sample) {
		if s.At.Before(before.Round(0)) || s.At.After(after) {
			t.Errorf("a sample at %v, outside of %v to %v", s.At, before, after)
		}
		if s.PID == cmd.Process.Pid {
			own++
		} else {
			child++
		}
	})
	if err != nil || own == 0 || child == 0 {
		t.Errorf("%d samples of the process and %d of its child, %v; want some of both", own, child, err)
	}
}

func TestNoPerf(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := Check(); err == nil || !strings.Contains(err.Error(), "linux-perf") {
		t.Errorf("without perf: %v; want an error that names the package", err)
	}
}

// A subject can write in the folder of its gate, which must be no link to another file.
func TestGateIsNoLink(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "kept")
	if err := errors.Join(os.WriteFile(outside, []byte("kept"), 0o600), os.Symlink(outside, filepath.Join(dir, "gate"))); err != nil {
		t.Fatal(err)
	}
	if gate, err := NewGate(dir); err == nil {
		_ = gate.Open()
		gate.Close()
		t.Error("a link was accepted as gate")
	}
	if text, err := os.ReadFile(outside); err != nil || string(text) != "kept" {
		t.Errorf("the file outside: %q, %v", text, err)
	}
}

// A subject can put anything where its program was.
func TestStrangeObjects(t *testing.T) {
	fifo, link := filepath.Join(t.TempDir(), "fifo"), filepath.Join(t.TempDir(), "link")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink("/dev/zero", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, link} {
		if name := (symbols{}).name(path, 0); name != filepath.Base(path) {
			t.Errorf("%s: %s", path, name)
		}
	}
	if _, err := contentOf(&elf.Section{SectionHeader: elf.SectionHeader{Name: "s", Size: 1 << 40, FileSize: 1 << 40}}); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a section of 1 TiB: %v", err)
	}
}
