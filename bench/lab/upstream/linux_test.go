package upstream

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fakeLinux puts the commands on PATH that fetch and build a kernel. make takes all options of the configuration but
// lacking, and builds a script that prints its version. calls returns the calls of make.
func fakeLinux(t *testing.T, lacking string) (calls func() string) {
	t.Helper()
	if err := needs("xz"); err != nil { // the fake source is a tarball like the real one
		t.Skip(err)
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source/linux-source-6.12/arch/x86/um")
	if err := os.MkdirAll(source, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(source, "user-offsets.c"), []byte("\tDEFINE_LONGS(HOST_FP_SIZE, 2696);\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	for name, script := range map[string]string{
		"apt-cache": `case "$1" in
			show) [ "$3" = linux-source-6.12 ] && printf 'Package: linux-source-6.12\nVersion: 6.12.1-2~deb\n';;
			search) printf 'linux-source-6.12 - source\nlinux-source-6.1 - source\n';;
			esac`,
		"apt-get":  `touch linux-source-6.12_6.12.1-2~deb_all.deb`,
		"dpkg-deb": fmt.Sprintf(`mkdir -p "$3/usr/src"; tar -cJf "$3/usr/src/linux-source-6.12.tar.xz" -C %q linux-source-6.12`, filepath.Join(dir, "source")),
		"make": fmt.Sprintf(`
			for word; do case "$word" in
			O=*) out=${word#O=};; KCONFIG_ALLCONFIG=*) config=${word#*=};; esac; source=${last-}; last=$word; done
			echo "$last $(cat "$2/arch/x86/um/user-offsets.c")" >> %q
			case "$last" in
			allnoconfig) grep -v %q "$config" > "$out/.config";;
			linux) i=0; while [ $i -lt 450 ]; do i=$((i+1)); echo "  CC      file$i.o"; done
				printf '#!/bin/sh\necho 6.12.1\n' > "$out/linux"; chmod +x "$out/linux";;
			esac`, log, lacking),
		"gcc": "", "flex": "", "bison": "", "bc": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

func TestBuildsLinuxOnce(t *testing.T) {
	calls := fakeLinux(t, "CONFIG_NFT_OBJREF")
	cache := t.TempDir()
	var said []string
	o := LinuxOptions{Version: "6.12", Cache: cache, Progress: func(text string) { said = append(said, text) }}
	if _, _, err := Linux(t.Context(), LinuxOptions{Version: "6.12", Cache: cache, CachedOnly: true}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("before the build: %v, want %v", err, ErrNotBuilt)
	}
	path, release, err := Linux(t.Context(), o)
	if err != nil || release != "6.12.1" {
		t.Fatalf("Linux = %q, %v; want 6.12.1", release, err)
	}
	if want := "linux-6.12.1-2~deb-uml-"; !strings.HasPrefix(filepath.Base(path), want) {
		t.Errorf("file %s, want %s…", path, want)
	}
	if text := calls(); strings.Count(text, "linux \t") != 1 || strings.Contains(text, "2696") || !strings.Contains(text, "12288") {
		t.Errorf("calls of make:\n%s", text)
	}
	all := strings.Join(said, "\n")
	for _, want := range []string{"fetching linux-source-6.12", "does not have CONFIG_NFT_OBJREF", "400 files compiled", "built in"} {
		if !strings.Contains(all, want) {
			t.Errorf("progress lacks %q:\n%s", want, all)
		}
	}
	if left, err := filepath.Glob(filepath.Join(cache, "synclab-tmp-*")); err != nil || len(left) > 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
	for _, version := range []string{"6.12", "6.12.1"} {
		again, _, err := Linux(t.Context(), LinuxOptions{Version: version, Cache: cache, CachedOnly: true})
		if err != nil || again != path {
			t.Errorf("%s again: %s, %v; want %s", version, again, err, path)
		}
	}
	// 6.1 is no beginning of 6.12.
	if _, _, err := Linux(t.Context(), LinuxOptions{Version: "6.1", Cache: cache, CachedOnly: true}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("6.1: %v, want %v", err, ErrNotBuilt)
	}
	built, err := Kernels(cache)
	if err != nil || len(built) != 1 || built[0].Version != "6.12.1-2~deb" || built[0].Path != path {
		t.Errorf("Kernels = %v, %v", built, err)
	}
}

func TestBuildsLinuxFromSource(t *testing.T) {
	calls := fakeLinux(t, "nothing")
	source := t.TempDir()
	offsets := filepath.Join(source, "arch/x86/um/user-offsets.c")
	if err := os.MkdirAll(filepath.Dir(offsets), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(offsets, []byte("2696"), 0o600); err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	for range 2 { // again each time, since the source may have changed
		path, release, err := Linux(t.Context(), LinuxOptions{Source: source, Cache: cache})
		if err != nil || release != "6.12.1" || !strings.Contains(path, "linux-6.12.1-source-") {
			t.Fatalf("Linux = %s, %s, %v", path, release, err)
		}
	}
	if text := calls(); strings.Count(text, "linux 2696") != 2 {
		t.Errorf("calls of make; the user's folder must stay as it is:\n%s", text)
	}
}

func TestLinuxRefuses(t *testing.T) {
	fakeLinux(t, "nothing")
	for _, c := range []struct {
		o    LinuxOptions
		want string
	}{
		{LinuxOptions{Version: "newest"}, `"newest" is no version of Linux`},
		{LinuxOptions{Version: "5.99"}, "no package linux-source-5.99 in this machine's package lists (they have 6.1, 6.12)"},
		{LinuxOptions{Source: "/nonexistent"}, "/nonexistent"},
	} {
		c.o.Cache = t.TempDir()
		if _, _, err := Linux(t.Context(), c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want an error that says %q", c.o, err, c.want)
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := needs("make", "flex"); err == nil || !strings.Contains(err.Error(), "needs make, flex: apt-get install make flex") {
		t.Errorf("without tools: %v", err)
	}
}
