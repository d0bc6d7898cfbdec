package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Pinned is the version that Synclab uses by default: the version in kubernetes.mod.
const Pinned = "v1.37.2"

// ErrNotBuilt means that the command is not in the cache and CachedOnly forbids building it. Other errors wrap it.
var ErrNotBuilt = errors.New("not built yet")

// Options select a command. The zero value selects the pinned version.
type Options struct {
	// Version of Kubernetes, such as v1.34.2. Default: Pinned.
	Version string
	// Path of a binary, or a name on PATH. It is used unchanged, and Version is ignored.
	Path string
	// Source is a folder with a checkout of Kubernetes, to build instead of Version. It is built each time, by Go's build cache.
	Source string
	// Cache is the folder for built commands. Default: see OpenCache.
	Cache string
	// CachedOnly forbids building, for callers that cannot wait for minutes.
	CachedOnly bool
	// Progress receives progress lines of a build.
	Progress func(string)
}

// KubeProxy returns the path of a kube-proxy and the version that it reports.
func KubeProxy(ctx context.Context, opts Options) (path, version string, err error) {
	return Command(ctx, "kube-proxy", opts)
}

// Command is KubeProxy for any command of k8s.io/kubernetes/cmd: kubectl, kube-apiserver.
func Command(ctx context.Context, name string, opts Options) (path, version string, err error) {
	switch {
	case opts.Path != "":
		if path, err = exec.LookPath(opts.Path); err == nil {
			path, err = filepath.Abs(path)
		}
	case opts.Source != "":
		path, err = checkout(ctx, name, opts)
	default:
		path, err = find(ctx, name, opts)
	}
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	if version, err = ask(ctx, name, path); err != nil {
		return "", "", fmt.Errorf("%s: %w", name, err)
	}
	return path, version, nil
}

// ask runs a binary to get its version: "Kubernetes v1.36.3", or for kubectl "Client Version: v1.36.3".
func ask(ctx context.Context, name, path string) (string, error) {
	args := []string{"--version"}
	if name == "kubectl" {
		args = []string{"version", "--client"}
	}
	out, err := exec.CommandContext(ctx, path, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w", path, strings.Join(args, " "), err)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if at := strings.LastIndexByte(line, ' '); at >= 0 {
		return line[at+1:], nil
	}
	return line, nil
}

// versions matches release versions; the groups are minor, and patch with its suffix.
var versions = regexp.MustCompile(`^v1\.(\d+)\.(\d+(?:-(?:alpha|beta|rc)\.\d+)?)$`)

// ParseVersion returns a release version of Kubernetes with its v: "1.34.2" is v1.34.2.
func ParseVersion(text string) (string, error) {
	version := "v" + strings.TrimPrefix(text, "v")
	if !versions.MatchString(version) {
		return "", fmt.Errorf("%q is no version of Kubernetes: want a version such as %s", text, Pinned)
	}
	return version, nil
}

// Minor returns 34 for v1.34.2; 0 for what is no release version.
func Minor(version string) int {
	parts := versions.FindStringSubmatch(version)
	if parts == nil {
		return 0
	}
	minor, _ := strconv.Atoi(parts[1]) // digits, by the pattern
	return minor
}

// find returns the path of a command of Kubernetes in the cache. It builds the command first if necessary.
func find(ctx context.Context, name string, opts Options) (string, error) {
	version, err := ParseVersion(cmp.Or(opts.Version, Pinned))
	if err != nil {
		return "", err
	}
	parts := versions.FindStringSubmatch(version)
	const says = "k8s.io/component-base/version"
	b := builder{
		Options: opts, command: name, program: kubernetes + "/cmd/" + name, version: version, staging: "v0." + parts[1] + "." + parts[2],
		ldflags: fmt.Sprintf(" -X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s", says, version, parts[1]),
	}
	if version == Pinned {
		b.mod, b.sum = pinnedMod, pinnedSum
	}
	path, err := b.find(ctx)
	if errors.Is(err, ErrNoGo) {
		err = fmt.Errorf("%w; or set the path of an existing binary", err)
	}
	return path, err
}

// find returns the path in the cache. It builds the command first if necessary.
func (b *builder) find(ctx context.Context) (string, error) {
	var err error
	if b.cache, err = OpenCache(b.Cache); err != nil {
		return "", err
	}
	b.goVersion, err = GoVersion(ctx)
	if err != nil || b.CachedOnly {
		// Without a build, use a binary that was built with another Go version.
		if path := b.cache.newest(fmt.Sprintf("%s-%s-go*-%s", b.command, b.version, runtime.GOARCH), b.origin()); path != "" {
			return path, nil
		}
		if b.CachedOnly {
			err = ErrNotBuilt
		}
		return "", fmt.Errorf("%s: %w", b.version, err)
	}
	file := fmt.Sprintf("%s-%s-%s-%s", b.command, b.version, b.goVersion, runtime.GOARCH)
	return b.cache.Get(ctx, file, b.origin(), func(path string) error { return b.build(ctx, path) })
}

// newest returns the newest intact file that matches a pattern; empty if there is none.
func (c Cache) newest(pattern, origin string) string {
	paths, err := c.matches(pattern, origin)
	if err != nil || len(paths) == 0 {
		return ""
	}
	return slices.MaxFunc(paths, func(a, b string) int { return written(a).Compare(written(b)) })
}

// written is when a file was written; zero if it is gone.
func written(path string) time.Time {
	if stat, err := os.Lstat(path); err == nil {
		return stat.ModTime()
	}
	return time.Time{}
}
