package root

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree makes a root from paths: "a/b" is a file, "a -> b" is a link.
func tree(t *testing.T, entries ...string) *Root {
	t.Helper()
	dir := t.TempDir()
	for _, entry := range entries {
		name, to, link := strings.Cut(entry, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if link {
			err = errors.Join(err, os.Symlink(to, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(name), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	r, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Links are followed as in the other system, and never lead out of it.
func TestResolve(t *testing.T) {
	r := tree(t, "usr/sbin/tool", "usr/sbin/absolute -> /etc/alternatives/tool", "etc/alternatives/tool -> /usr/sbin/tool",
		"usr/sbin/relative -> ../../usr/./sbin/tool", "usr/sbin/up -> ../../../../../../../usr/sbin/tool", "opt/folder -> /usr/sbin",
		"usr/sbin/out -> ../../../../../../../../../../../etc/passwd", "usr/sbin/out2 -> /etc/passwd", "usr/sbin/loop -> loop",
		"usr/lib/lib.so", "lib64 -> usr/lib")
	for path, want := range map[string]string{
		"usr/sbin/tool": "usr/sbin/tool", "/usr/sbin/absolute": "usr/sbin/tool", "usr/sbin/relative": "usr/sbin/tool", "usr/sbin/up": "usr/sbin/tool",
		"opt/folder/up": "usr/sbin/tool", "../../usr/sbin/tool": "usr/sbin/tool", "/lib64/lib.so": "usr/lib/lib.so",
		"/lib/lib.so": "usr/lib/lib.so", "sbin/tool": "usr/sbin/tool", // packages rely on links of another package
	} {
		if got, err := r.Resolve(path); err != nil || got != filepath.Join(r.Dir(), want) {
			t.Errorf("%s is %s, %v; want %s", path, got, err, want)
		}
	}
	for _, path := range []string{"usr/sbin/out", "usr/sbin/out2", "usr/sbin/none"} {
		if got, err := r.Resolve(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is %q, %v; want no such file", path, got, err)
		}
	}
	if _, err := r.Resolve("usr/sbin/loop"); !errors.Is(err, unix.ELOOP) {
		t.Errorf("a loop: %v", err)
	}
	for _, dir := range []string{filepath.Join(r.Dir(), "usr/sbin/tool"), filepath.Join(r.Dir(), "none")} {
		if _, err := Open(dir); err == nil {
			t.Errorf("%s is accepted as a root", dir)
		}
	}
}

// A script that stands for the choice of a variant must not run: it would change this machine's links.
func TestFindRefuses(t *testing.T) {
	r := tree(t, "usr/sbin/iptables", "usr/sbin/nft", "usr/bin/ipset")
	if _, err := r.Find("nft"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "no ELF program") {
		t.Errorf("a script: %v", err)
	}
	if _, err := r.Find("ip6tables-nft"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), r.Dir()) {
		t.Errorf("a missing tool: %v", err)
	}
	if tool, err := r.Find("iptables"); err == nil {
		t.Errorf("a plain name without variants: %+v", tool)
	}
}
