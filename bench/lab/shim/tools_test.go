package shim

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/lab/shim/root"
	"synclab/proxier/iptables"
)

// copied makes a root of the machine's own iptables: the program, its loader and libraries, and its extensions. Names of
// tools are links, absolute ones too.
func copied(t *testing.T) string {
	t.Helper()
	machine, err := root.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	tool, err := machine.Find("iptables-nft")
	if err != nil {
		t.Skip("no iptables here: ", err)
	}
	if tool.Loader == "" {
		t.Skip("this machine's iptables is static")
	}
	dir := t.TempDir()
	copyTo := func(from, to string) {
		t.Helper()
		to = filepath.Join(dir, to)
		in, err := os.Open(from)
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(out, in); err != nil {
			t.Fatal(err)
		}
		out.Close()
	}
	copyTo(tool.Path, "opt/multi")
	copyTo(tool.Loader, interpreter(t, tool.Path))
	libraries, err := machine.Libraries(tool.Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range libraries {
		copyTo(file, "usr/lib/x86_64-linux-gnu/"+name)
	}
	for name, file := range machine.Extensions() {
		copyTo(file, "usr/lib/x86_64-linux-gnu/xtables/"+name)
	}
	for _, name := range foreignTools() {
		if strings.Contains(name, "-nft") {
			link(t, "/opt/multi", filepath.Join(dir, "usr/sbin", name))
		}
	}
	return dir
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// interpreter returns the path of a program's loader, as the program names it.
func interpreter(t *testing.T, program string) string {
	t.Helper()
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(text), "/ld-")
	begin := strings.LastIndexByte(string(text[:at]), 0) + 1
	end := strings.IndexByte(string(text[at:]), 0) + at
	return string(text[begin:end])
}

func use(t *testing.T, dir string) (links string, err error) {
	t.Helper()
	links = t.TempDir()
	release, err := Use(t.Context(), dir, links)
	if err == nil {
		t.Cleanup(release)
	}
	return links, err
}

// The tools of another root run by their own loader with their own libraries, by themselves and behind a subject's shim.
// Tools that the root lacks are missing, although the machine has them.
func TestUse(t *testing.T) {
	dir := copied(t)
	before := os.Environ()
	links := t.TempDir()
	release, err := Use(t.Context(), dir, links)
	if err != nil {
		t.Fatal(err)
	}
	path, err := iptables.FindBinary("iptables-nft-restore")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "--version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "iptables-restore v") && !strings.HasPrefix(string(out), "iptables-nft-restore v") {
		t.Errorf("%s --version: %q, %v", path, out, err)
	}
	if path, err := iptables.FindBinary("nft"); err == nil || !strings.Contains(err.Error(), "nft: not found below "+dir) {
		t.Errorf("a tool that the root lacks: %s, %v", path, err)
	}

	s, err := Install(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "shim"), Variant: "nft"})
	if err != nil {
		t.Fatal(err)
	}
	// The loader lists the libraries that it would load.
	cmd := s.cmd("iptables", "-t", "nat", "-S")
	cmd.Env = append(os.Environ(), "LD_TRACE_LOADED_OBJECTS=1")
	if out, err = cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	ours := filepath.Join(links, "lib") + "/"
	for line := range strings.Lines(string(out)) {
		if _, file, found := strings.Cut(line, " => "); found && strings.HasPrefix(file, "/") && !strings.HasPrefix(file, ours) {
			t.Errorf("a library of the machine: %s", line)
		}
	}
	if !strings.Contains(string(out), ours) {
		t.Errorf("no libraries of the root:\n%s", out)
	}
	call := only(t, s)
	if call.Tool != "iptables" || filepath.Base(call.Real) != "iptables-nft" || call.ExitCode != 0 || len(call.Args) != 3 {
		t.Errorf("call %+v", call)
	}
	for _, folder := range []string{"exe", "lib", "xtables", "loader"} {
		entries, err := os.ReadDir(filepath.Join(links, folder))
		if err != nil || len(entries) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, entry := range entries {
			if file, err := filepath.EvalSymlinks(filepath.Join(links, folder, entry.Name())); err != nil || !strings.HasPrefix(file, dir+"/") {
				t.Errorf("%s/%s is %s, %v", folder, entry.Name(), file, err)
			}
		}
	}
	release()
	if after := os.Environ(); !slices.Equal(slices.Sorted(slices.Values(after)), slices.Sorted(slices.Values(before))) {
		t.Error("the environment is not as before")
	}
}

// A root whose tools cannot run is refused, with the tool and what it lacks.
func TestUseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string) error
		want   string
	}{
		"no tools": {func(_ *testing.T, dir string) error { return os.RemoveAll(filepath.Join(dir, "usr/sbin")) }, "no iptables, nft or ipset below"},
		"no libraries": {func(_ *testing.T, dir string) error {
			return os.RemoveAll(filepath.Join(dir, "usr/lib"))
		}, "which is not below"},
		"no loader": {func(t *testing.T, dir string) error {
			return os.Remove(filepath.Join(dir, interpreter(t, filepath.Join(dir, "opt/multi"))))
		}, "needs its loader"},
		"half": {func(_ *testing.T, dir string) error {
			return os.Remove(filepath.Join(dir, "usr/sbin/ip6tables-nft-save"))
		}, "but not ip6tables-nft-save"},
		"a link that leaves it": {func(t *testing.T, dir string) error {
			err := os.RemoveAll(filepath.Join(dir, "usr/sbin"))
			for _, tool := range foreignTools() {
				link(t, "../../../../../../../../../../../../../bin/sh", filepath.Join(dir, "usr/sbin", tool))
			}
			return err
		}, "no iptables, nft or ipset below"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := copied(t)
			if err := c.change(t, dir); err != nil {
				t.Fatal(err)
			}
			if _, err := use(t, dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), dir) {
				t.Errorf("error %v; want %q with %s", err, c.want, dir)
			}
			if os.Getenv(iptables.EnvTools) != "" {
				t.Error("it is in use")
			}
		})
	}
}
