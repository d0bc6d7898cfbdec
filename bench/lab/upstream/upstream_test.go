package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fakeGo puts a go command on PATH that logs its calls and builds a command that prints its version. fails is the error
// text of a failing build; if it is empty, the build succeeds.
func fakeGo(t *testing.T, fails string) (account func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	mod := filepath.Join(dir, "kubernetes.mod")
	script := fmt.Sprintf(`#!/bin/sh
		case "$1 $2" in
		"env GOVERSION") echo go1.99.1; exit;;
		"mod download") echo '{"GoMod": %q, "Dir": %[4]q}'; echo "$@" >> %[2]q; exit;;
		"mod edit") cat %[1]q; exit;;
		esac
		echo "$(pwd): $*" >> %[2]q
		cp go.mod %[2]q.mod
		fails=%[3]q
		if [ -n "$fails" ]; then echo "$fails" >&2; exit 1; fi
		echo "go: downloading example.com/module v1.0.0" >&2
		i=0; while [ $i -lt 250 ]; do i=$((i+1)); echo package/$i >&2; done
		while [ "$1" != -o ]; do
			case "$1" in *gitVersion=*) version=${1#*gitVersion=}; version=${version%%%% *};; esac
			shift
		done
		printf '#!/bin/sh\n# %%s\necho Kubernetes %%s\n' "$(pwd)" "$version" > "$2"
		chmod +x "$2"
	`, mod, log, fails, dir)
	files := map[string]string{
		filepath.Join(dir, "go"): script,
		log:                      "",
		mod: `{"Module": {"Path": "k8s.io/kubernetes"}, "Go": "1.24.0", "GoDebug": [{"Key": "default", "Value": "go1.24"}], "Replace": [
			{"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
			{"Old": {"Path": "example.com/other"}, "New": {"Path": "example.com/fork", "Version": "v1.0.0"}},
			{"Old": {"Path": "k8s.io/kube-proxy"}, "New": {"Path": "./staging/src/k8s.io/kube-proxy"}}]}`,
	}
	for path, text := range files {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// goModOf returns the path where fakeGo keeps the go.mod of its last build.
func goModOf(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(filepath.Dir(path), "log.mod")
}

func TestBuildsThePinnedVersionOnce(t *testing.T) {
	account := fakeGo(t, "")
	cache := t.TempDir()
	var said []string
	opts := Options{Cache: cache, Progress: func(line string) { said = append(said, line) }}
	path, version, err := KubeProxy(t.Context(), opts)
	if err != nil || version != Pinned || filepath.Dir(path) != cache {
		t.Fatalf("%s, %s, %v", path, version, err)
	}
	calls := account()
	if len(calls) != 1 || !strings.HasPrefix(calls[0], cache+"/synclab-tmp-") || !strings.HasSuffix(calls[0], " k8s.io/kubernetes/cmd/kube-proxy") ||
		strings.Contains(calls[0], "-mod=mod") {
		t.Errorf("go was called: %q", calls)
	}
	if len(said) < 4 || !strings.Contains(said[0], "some minutes") || !slices.Contains(said, "building kube-proxy "+Pinned+": 200 packages compiled") {
		t.Errorf("progress %q", said)
	}
	said = nil
	again, _, err := KubeProxy(t.Context(), opts)
	if err != nil || again != path || len(account()) != 1 || said != nil {
		t.Errorf("the second time: %s, %v, go %q, progress %q", again, err, account(), said)
	}
}

func TestBuildsAnotherVersion(t *testing.T) {
	account := fakeGo(t, "")
	cache := t.TempDir()
	_, version, err := KubeProxy(t.Context(), Options{Cache: cache, Version: "1.34.2"})
	if err != nil || version != "v1.34.2" {
		t.Fatal(version, err)
	}
	calls := account()
	if len(calls) != 2 || calls[0] != "mod download -json k8s.io/kubernetes@v1.34.2" || !strings.Contains(calls[1], "-mod=mod") {
		t.Fatalf("go was called: %q", calls)
	}
	text, err := os.ReadFile(goModOf(t))
	const want = `module synclab/kube-proxy

go 1.24.0

godebug default=go1.24

require k8s.io/kubernetes v1.34.2

replace (
	k8s.io/api => k8s.io/api v0.34.2
	k8s.io/kube-proxy => k8s.io/kube-proxy v0.34.2
)
`
	if err != nil || string(text) != want {
		t.Errorf("go.mod, %v:\n%s\nwant:\n%s", err, text, want)
	}
}

// A checkout is built where it is, in its own workspace, beside any release.
func TestBuildsACheckout(t *testing.T) {
	account := fakeGo(t, "")
	cache, source := t.TempDir(), t.TempDir()
	if _, _, err := KubeProxy(t.Context(), Options{Cache: cache, Source: source}); err == nil || !strings.Contains(err.Error(), "no checkout with a command kube-proxy") {
		t.Errorf("an empty folder: %v", err)
	}
	for _, name := range []string{"cmd/kube-proxy", "go.mod"} {
		if err := os.MkdirAll(filepath.Join(source, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		path, version, err := KubeProxy(t.Context(), Options{Cache: cache, Source: source})
		if err != nil || version != "v0.0.0-source" || filepath.Dir(path) != cache {
			t.Errorf("%s, %s, %v", path, version, err)
		}
	}
	if calls := account(); len(calls) != 2 || !strings.HasPrefix(calls[0], source+": build") || !strings.HasSuffix(calls[0], " ./cmd/kube-proxy") {
		t.Errorf("go was called: %q", calls)
	}
}

// A revision is built from a clone of the repository around the working directory, whose files stay as they are.
func TestBuildsARevision(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	account := fakeGo(t, "")
	repository := t.TempDir()
	t.Chdir(repository)
	if _, err := Synclab(t.Context(), Options{Cache: t.TempDir(), Version: "HEAD"}); err == nil || !strings.Contains(err.Error(), "not in a checkout of Synclab") {
		t.Errorf("outside of a repository: %v", err)
	}
	if out, err := exec.Command("sh", "-ec", `git init -q .
		git config user.email a@example.com && git config user.name a
		mkdir -p cmd/synclab && echo first >cmd/synclab/main.go && echo module synclab >go.mod && git add . && git commit -qm first
		echo second >cmd/synclab/main.go && git commit -qam second && echo third >cmd/synclab/main.go`).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if _, err := Synclab(t.Context(), Options{Cache: t.TempDir(), Version: "gone"}); err == nil || !strings.Contains(err.Error(), "revision gone of") {
		t.Errorf("an unknown revision: %v", err)
	}
	if path, err := Synclab(t.Context(), Options{Cache: t.TempDir(), Version: "HEAD~1"}); err != nil || !strings.HasPrefix(filepath.Base(path), "source-synclab-") {
		t.Errorf("%s, %v", path, err)
	}
	if calls := account(); len(calls) != 1 || !strings.HasSuffix(calls[0], " ./cmd/synclab") || strings.HasPrefix(calls[0], repository) {
		t.Errorf("go was called: %q", calls)
	}
	if text, err := os.ReadFile("cmd/synclab/main.go"); err != nil || string(text) != "third\n" {
		t.Errorf("the working tree: %q, %v", text, err)
	}
}

// A build of one checkout does not replace that of another, which a run may be measuring. Old builds do not stay for ever.
func TestCheckoutsAtOnce(t *testing.T) {
	fakeGo(t, "")
	cache, first := t.TempDir(), ""
	var before []byte
	for i := range 9 {
		source := t.TempDir()
		if err := os.MkdirAll(filepath.Join(source, "cmd/kube-proxy"), 0o755); err != nil {
			t.Fatal(err)
		}
		path, _, err := KubeProxy(t.Context(), Options{Cache: cache, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = path
			if before, err = os.ReadFile(path); err != nil {
				t.Fatal(err)
			}
		}
		after, err := os.ReadFile(first)
		if (err == nil) != (i < 8) || err == nil && !bytes.Equal(before, after) {
			t.Errorf("after %d more builds, the first is %q (%v), was %q", i, after, err, before)
		}
	}
}

func TestTwoAtOnceBuildOnce(t *testing.T) {
	account := fakeGo(t, "")
	cache := t.TempDir()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if _, _, err := KubeProxy(t.Context(), Options{Cache: cache}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if calls := account(); len(calls) != 1 {
		t.Errorf("go was called: %q", calls)
	}
}

func TestWaitingForAnotherBuildEnds(t *testing.T) {
	cache, err := OpenCache(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = cache.Get(t.Context(), "thing", "", func(string) error {
		cancel()
		_, err := cache.Get(ctx, "thing", "", func(string) error { t.Error("built by two"); return nil })
		return err
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestFailedBuild(t *testing.T) {
	for _, c := range []struct{ said, want string }{
		{"x.go:1: syntax error", "syntax error"},
		{"dial tcp: lookup proxy.golang.org: no such host", "GOPROXY"},
	} {
		fakeGo(t, c.said)
		cache := t.TempDir()
		_, _, err := KubeProxy(t.Context(), Options{Cache: cache})
		if err == nil || !strings.Contains(err.Error(), c.said) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
		left, globErr := filepath.Glob(filepath.Join(cache, "kube-proxy*"))
		if globErr != nil || len(left) != 0 {
			t.Errorf("left %q", left)
		}
	}
}

func TestWithoutGo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	cache := t.TempDir()
	_, _, err := KubeProxy(t.Context(), Options{Cache: cache})
	if !errors.Is(err, ErrNoGo) || !strings.Contains(err.Error(), "install") {
		t.Errorf("got %v", err)
	}
	name := fmt.Sprintf("kube-proxy-%s-go1.20-%s", Pinned, runtime.GOARCH)
	path, err := Cache{cache}.Get(t.Context(), name, (&builder{version: Pinned, mod: pinnedMod, sum: pinnedSum}).origin(), func(path string) error {
		return os.WriteFile(path, []byte("#!/bin/sh\necho Kubernetes "+Pinned+"\n"), 0o755)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := KubeProxy(t.Context(), Options{Cache: cache}); err != nil || got != path {
		t.Errorf("a binary of another Go version: %s, %v", got, err)
	}
}

func TestCachedOnly(t *testing.T) {
	account := fakeGo(t, "")
	if _, _, err := KubeProxy(t.Context(), Options{Cache: t.TempDir(), CachedOnly: true}); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("got %v", err)
	}
	if calls := account(); calls[0] != "" {
		t.Errorf("go was called: %q", calls)
	}
}

func TestPath(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "my-proxy")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n[ \"$1\" = --version ] && echo Kubernetes v1.99.0-custom\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, version, err := KubeProxy(t.Context(), Options{Path: path}); got != path || version != "v1.99.0-custom" || err != nil {
		t.Errorf("%s, %s, %v", got, version, err)
	}
	t.Setenv("PATH", dir)
	if got, _, err := KubeProxy(t.Context(), Options{Path: "my-proxy"}); got != path || err != nil {
		t.Errorf("%s, %v", got, err)
	}
	for _, bad := range []string{filepath.Join(dir, "none"), "no-such-proxy"} {
		if _, _, err := KubeProxy(t.Context(), Options{Path: bad}); err == nil {
			t.Errorf("no error for %s", bad)
		}
	}
}

func TestVersionsThatAreNone(t *testing.T) {
	for _, bad := range []string{"latest", "v1.36", "2.0.0", "v1.36.3/../../x", "v1.36.3 "} {
		if _, _, err := KubeProxy(t.Context(), Options{Cache: t.TempDir(), Version: bad}); err == nil || !strings.Contains(err.Error(), "no version") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDefaultCache(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", home)
	if c, err := OpenCache(""); err != nil || c.Path("x") != filepath.Join(home, "synclab", "x") {
		t.Errorf("%v, %v", c, err)
	}
	// A file in place of the folder: not even root can write there.
	file := filepath.Join(home, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	t.Setenv("TMPDIR", home)
	if c, err := OpenCache(""); err != nil || filepath.Dir(filepath.Dir(c.Path("x"))) != home {
		t.Errorf("%v, %v", c, err)
	}
}

// Without HOME, the cache is in the home of the user database: not in a folder that another user may have made.
func TestCacheWithoutHome(t *testing.T) {
	account, err := user.LookupId(strconv.Itoa(os.Getuid()))
	if err != nil {
		t.Skip(err)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_CACHE_HOME", "")
	if dir, err := userCache(); err != nil || dir != filepath.Join(account.HomeDir, ".cache") {
		t.Errorf("%s, %v; want the cache in %s", dir, err, account.HomeDir)
	}
}

// Cilium's load balancer is built from its own module, once.
func TestBuildsCilium(t *testing.T) {
	account := fakeGo(t, "")
	path := os.Getenv("PATH")
	dir, _, _ := strings.Cut(path, ":")
	opts := Options{Cache: t.TempDir(), CachedOnly: true}
	if _, err := Cilium(t.Context(), opts); !errors.Is(err, ErrNotBuilt) {
		t.Errorf("before the build: %v", err)
	}
	opts.CachedOnly = false
	t.Setenv("PATH", dir)
	for _, tool := range []string{"cat", "cp", "chmod", "mkdir"} { // of the script: no clang
		if at, err := exec.LookPath(tool); err == nil || os.Symlink(filepath.Join("/bin", tool), filepath.Join(dir, tool)) != nil {
			t.Fatal(at, err)
		}
	}
	if _, err := Cilium(t.Context(), opts); !errors.Is(err, ErrNoClang) {
		t.Errorf("without clang: %v", err)
	}
	t.Setenv("PATH", path)
	clang := "#!/bin/sh\nset -e\ntest -e bpf_sock.c\nwhile [ \"$1\" != -o ]; do shift; done\necho object > \"$2\"\n"
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "bpf"), 0o755), os.WriteFile(filepath.Join(dir, "bpf", "bpf_sock.c"), nil, 0o600), os.WriteFile(filepath.Join(dir, "clang"), []byte(clang), 0o755)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		paths, err := Cilium(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(paths.Sockets); string(text) != "object\n" {
			t.Errorf("the programs: %q, %v", text, err)
		}
	}
	if calls := account(); len(calls) != 2 || !strings.HasSuffix(calls[1], " github.com/cilium/cilium/pkg/loadbalancer/repl") || calls[0] != "mod download -json github.com/cilium/cilium" {
		t.Errorf("go was called: %q", calls)
	}
	if got, err := os.ReadFile(goModOf(t)); err != nil || !bytes.Equal(got, ciliumMod) {
		t.Errorf("built in module %q, %v", got, err)
	}
}

// TestPinnedModule checks that the constants and the modules have the same versions.
func TestPinnedModule(t *testing.T) {
	const cilium = "github.com/cilium/cilium " + CiliumVersion
	if !bytes.Contains(ciliumMod, []byte("\nrequire "+cilium+"\n")) || !bytes.Contains(ciliumSum, []byte("\n"+cilium+" h1:")) {
		t.Errorf("cilium.mod or cilium.sum is not of version %s", CiliumVersion)
	}
	if !bytes.Contains(pinnedMod, []byte("\t"+kubernetes+" "+Pinned+" ")) || !bytes.Contains(pinnedSum, []byte("\n"+kubernetes+" "+Pinned+" h1:")) {
		t.Errorf("kubernetes.mod or kubernetes.sum is not of version %s", Pinned)
	}
}

// Files in the working directory do not influence a build.
func TestWorkingDirectoryDecidesNothing(t *testing.T) {
	dir := t.TempDir()
	planted := filepath.Join(dir, "bench", "kubernetes")
	mod := "module planted\n\nrequire (\n\t" + kubernetes + " " + Pinned + "\n)\n\nreplace " + kubernetes + " => ./evil\n"
	if err := errors.Join(os.MkdirAll(planted, 0o755), os.WriteFile(filepath.Join(planted, "go.mod"), []byte(mod), 0o644), os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	account := fakeGo(t, "")
	if _, _, err := KubeProxy(t.Context(), Options{Cache: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(goModOf(t)); err != nil || !bytes.Equal(got, pinnedMod) {
		t.Errorf("%v; built from another go.mod:\n%s", err, got)
	}
	for _, call := range account() {
		if strings.HasPrefix(call, dir) {
			t.Errorf("go worked in %s: %s", dir, call)
		}
	}
}

// A binary that was changed, or has another origin, is built again.
func TestCacheIsChecked(t *testing.T) {
	account := fakeGo(t, "")
	cache := t.TempDir()
	path, _, err := KubeProxy(t.Context(), Options{Cache: cache})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"another binary": func() error {
			return os.WriteFile(path, []byte("#!/bin/sh\n: planted\necho Kubernetes "+Pinned+"\n"), 0o755)
		},
		"another origin": func() error { return os.WriteFile(Origin(path), []byte(`{"origin":"sha256:0"}`), 0o644) },
		"no origin":      func() error { return os.Remove(Origin(path)) },
	} {
		before := len(account())
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := KubeProxy(t.Context(), Options{Cache: cache, CachedOnly: true}); !errors.Is(err, ErrNotBuilt) {
			t.Errorf("%s: accepted as intact: %v", name, err)
		}
		if _, _, err := KubeProxy(t.Context(), Options{Cache: cache}); err != nil || len(account()) != before+1 {
			t.Errorf("%s: %v, go %q", name, err, account()[before:])
		}
	}
}

// TestReal uses kube-proxy. A build takes minutes, so it needs a cached one or an explicit request.
func TestReal(t *testing.T) {
	onDemand := os.Getenv("SYNCLAB_BUILD_KUBERNETES") == "1"
	versions := []string{Pinned}
	if more := os.Getenv("SYNCLAB_KUBERNETES_VERSIONS"); more != "" {
		versions = append(versions, strings.Fields(more)...)
	}
	for _, want := range versions {
		path, version, err := KubeProxy(t.Context(), Options{Version: want, CachedOnly: !onDemand, Progress: func(line string) { t.Log(line) }})
		if errors.Is(err, ErrNotBuilt) {
			t.Skip(err, "; SYNCLAB_BUILD_KUBERNETES=1 builds it")
		}
		if err != nil || version != want {
			t.Errorf("%s reports version %s, want %s; %v", path, version, want, err)
		}
	}
}
