package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
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

	"synclab/bench/lab/temporary"
)

// LinuxOptions select a User-mode Linux kernel: a Linux kernel that runs as an ordinary process.
type LinuxOptions struct {
	// Version of Linux, such as 6.12: its source is Debian's package linux-source-6.12. A version in the cache may also be
	// given in full, such as 6.12.117. Ignored with Source.
	Version string
	// Source is a folder or a tarball with Linux's source, to build instead.
	Source string
	// Cache is the folder for built kernels. Default: see OpenCache.
	Cache string
	// CachedOnly forbids building.
	CachedOnly bool
	// Progress receives progress lines of a build. May be nil.
	Progress func(string)
}

//go:embed linux.config
var linuxConfig []byte

const linuxPackage = "linux-source-"

// linuxVersions matches 6.12 and 6.12.117.
var linuxVersions = regexp.MustCompile(`^\d+\.\d+(\.\d+)?$`)

// IsLinuxVersion reports whether a text is a version for LinuxOptions.
func IsLinuxVersion(text string) bool { return linuxVersions.MatchString(text) }

// LinuxSeries returns the first two numbers of a version: 6.12 of 6.12.117-1~deb12u1.
func LinuxSeries(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Linux returns the path of a kernel, and its release as uname prints it. It builds the kernel if necessary, which takes
// some minutes and 2 GB of disk.
func Linux(ctx context.Context, o LinuxOptions) (path, release string, err error) {
	if path, err = linux(ctx, o); err != nil {
		return "", "", fmt.Errorf("kernel %s: %w", o.name(), err)
	}
	if release, err = linuxRelease(ctx, path); err != nil {
		return "", "", fmt.Errorf("kernel %s: %w", o.name(), err)
	}
	return path, release, nil
}

func (o LinuxOptions) name() string {
	if o.Source != "" {
		return o.Source
	}
	return o.Version
}

func linuxRelease(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func linux(ctx context.Context, o LinuxOptions) (string, error) {
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	cache, err := OpenCache(o.Cache)
	if err != nil {
		return "", err
	}
	if o.Source != "" {
		return o.fromSource(ctx, cache)
	}
	if !IsLinuxVersion(o.Version) {
		return "", fmt.Errorf("%q is no version of Linux: want a version such as 6.12", o.Version)
	}
	if path := cache.newest(linuxFile(o.Version+`[.\-]*`), linuxOrigin()); path != "" {
		return path, nil
	}
	if o.CachedOnly {
		return "", fmt.Errorf("%w: synclab build kernel %s builds it", ErrNotBuilt, o.Version)
	}
	return o.fromPackage(ctx, cache)
}

// linuxFile returns the name of a kernel's file.
func linuxFile(version string) string { return "linux-" + version + "-uml-" + runtime.GOARCH }

// linuxOrigin identifies the configuration: a kernel with another one is built again. The version is in the file's name.
func linuxOrigin() string { return fmt.Sprintf("linux.config sha256:%x", sha256.Sum256(linuxConfig)) }

// BuiltKernel is a kernel in the cache.
type BuiltKernel struct {
	Version string // of its source: 6.12.117-1~deb12u1
	Path    string
	Built   time.Time
}

// Kernels returns the kernels in a cache with this program's configuration, by version.
func Kernels(dir string) ([]BuiltKernel, error) {
	cache, err := OpenCache(dir)
	if err != nil {
		return nil, err
	}
	paths, err := cache.matches(linuxFile("*"), linuxOrigin())
	if err != nil {
		return nil, err
	}
	before, after, _ := strings.Cut(linuxFile("*"), "*")
	var all []BuiltKernel
	for _, path := range paths {
		name := filepath.Base(path)
		if stat, err := os.Stat(path); err == nil {
			all = append(all, BuiltKernel{strings.TrimSuffix(strings.TrimPrefix(name, before), after), path, stat.ModTime()})
		}
	}
	return all, nil
}

// Packages returns the versions of Linux whose source this machine's package lists have: 6.1, 6.12.
func Packages(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "apt-cache", "search", "--names-only", "^"+linuxPackage+`[0-9.]+$`).Output()
	if err != nil {
		return nil, fmt.Errorf("apt-cache search: %w", err)
	}
	var versions []string
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(line, " ")
		versions = append(versions, strings.TrimPrefix(name, linuxPackage))
	}
	slices.Sort(versions)
	return slices.Compact(versions), nil
}

// fromPackage builds a kernel from Debian's package of its source.
func (o LinuxOptions) fromPackage(ctx context.Context, cache Cache) (string, error) {
	if err := needs("apt-get", "apt-cache", "dpkg-deb", "xz"); err != nil {
		return "", fmt.Errorf("%w; or build from --source", err)
	}
	name := linuxPackage + o.Version
	out, err := exec.CommandContext(ctx, "apt-cache", "show", "--no-all-versions", name).Output()
	version := ""
	for line := range strings.Lines(string(out)) {
		if value, ok := strings.CutPrefix(line, "Version: "); ok {
			version = strings.TrimSpace(value)
		}
	}
	if err != nil || version == "" {
		known, _ := Packages(ctx)
		return "", fmt.Errorf("no package %s in this machine's package lists (%s): update them with apt-get update, or build from --source",
			name, orNone(known))
	}
	return cache.Get(ctx, linuxFile(version), linuxOrigin(), func(path string) error {
		return o.inPrivateFolder(cache, func(dir string) error {
			o.Progress("fetching " + name + " " + version + ": 150 MB")
			if err := o.run(ctx, dir, nil, "apt-get", "download", "-q", name); err != nil {
				return err
			}
			packages, err := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
			if err != nil || len(packages) != 1 {
				return errors.Join(err, fmt.Errorf("apt-get download %s left %d packages", name, len(packages)))
			}
			if err := o.run(ctx, dir, nil, "dpkg-deb", "-x", packages[0], "package"); err != nil {
				return err
			}
			return o.fromTarball(ctx, dir, filepath.Join(dir, "package/usr/src", name+".tar.xz"), path)
		})
	})
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "they have no version"
	}
	return "they have " + strings.Join(words, ", ")
}

// fromSource builds a kernel from a folder or a tarball. It builds it each time, because the source may have changed.
func (o LinuxOptions) fromSource(ctx context.Context, cache Cache) (string, error) {
	source, err := filepath.Abs(o.Source)
	if err != nil {
		return "", err
	}
	stat, err := os.Stat(source)
	if err != nil {
		return "", err
	}
	var built string
	return built, o.inPrivateFolder(cache, func(dir string) error {
		draft := filepath.Join(dir, "linux")
		if stat.IsDir() {
			err = o.make(ctx, dir, source, draft)
		} else {
			err = o.fromTarball(ctx, dir, source, draft)
		}
		if err != nil {
			return err
		}
		release, err := linuxRelease(ctx, draft)
		if err != nil {
			return err
		}
		digest, err := Digest(draft)
		if err != nil {
			return err
		}
		name := linuxFile(release + "-source-" + strings.TrimPrefix(digest, "sha256:")[:16])
		built, err = cache.Get(ctx, name, linuxOrigin(), func(path string) error { return os.Rename(draft, path) })
		return err
	})
}

// inPrivateFolder calls build with a new folder in the cache, whose file system has the space, and removes it afterwards.
func (o LinuxOptions) inPrivateFolder(cache Cache, build func(dir string) error) error {
	_, _ = temporary.Sweep(cache.dir) // a failed sweep does not prevent a build
	dir, err := temporary.New(cache.dir)
	if err != nil {
		return err
	}
	return errors.Join(build(dir.Path), dir.Remove())
}

func (o LinuxOptions) fromTarball(ctx context.Context, dir, tarball, path string) error {
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	o.Progress("unpacking " + filepath.Base(tarball))
	if err := o.run(ctx, source, nil, "tar", "--strip-components=1", "-xf", tarball); err != nil {
		return err
	}
	if err := widenRegisters(source); err != nil {
		return err
	}
	return o.make(ctx, dir, source, path)
}

// widenRegisters makes room for the registers of processors with AMX, for which versions before 6.13 have none: they do
// not boot there. It changes the only place with their size, in bytes.
func widenRegisters(source string) error {
	path := filepath.Join(source, "arch/x86/um/user-offsets.c")
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("no source of Linux: %w", err)
	}
	return os.WriteFile(path, bytes.Replace(text, []byte("DEFINE_LONGS(HOST_FP_SIZE, 2696);"), []byte("DEFINE_LONGS(HOST_FP_SIZE, 12288);"), 1), 0o600)
}

// make builds source in dir, outside the source's folder, and moves the kernel to path.
func (o LinuxOptions) make(ctx context.Context, dir, source, path string) error {
	start := time.Now()
	if err := needs("make", "gcc", "flex", "bison", "bc"); err != nil {
		return err
	}
	config, build := filepath.Join(dir, "linux.config"), filepath.Join(dir, "build")
	if err := errors.Join(os.Mkdir(build, 0o700), os.WriteFile(config, linuxConfig, 0o600)); err != nil {
		return err
	}
	arguments := []string{"-C", source, "ARCH=um", "O=" + build, "KBUILD_BUILD_USER=synclab", "KBUILD_BUILD_HOST=synclab"}
	if err := o.run(ctx, dir, nil, "make", append(arguments, "KCONFIG_ALLCONFIG="+config, "allnoconfig")...); err != nil {
		return err
	}
	lacking, err := lackingOptions(filepath.Join(build, ".config"))
	if err != nil {
		return err
	}
	if len(lacking) > 0 {
		o.Progress("this version does not have " + strings.Join(lacking, ", "))
	}
	const often = 200
	files := 0
	count := func(line string) {
		if strings.HasPrefix(line, "  CC ") {
			if files++; files%often == 0 {
				o.Progress(fmt.Sprintf("building: %d files compiled", files))
			}
		}
	}
	if err := o.run(ctx, dir, count, "make", append(arguments, "-j", strconv.Itoa(runtime.NumCPU()), "linux")...); err != nil {
		return err
	}
	o.Progress(fmt.Sprintf("built in %s", time.Since(start).Round(time.Second)))
	return os.Rename(filepath.Join(build, "linux"), path)
}

// lackingOptions returns the options of linux.config that a configured version did not take.
func lackingOptions(config string) ([]string, error) {
	text, err := os.ReadFile(config)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		taken[strings.TrimSpace(line)] = true
	}
	var lacking []string
	for line := range strings.Lines(string(linuxConfig)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "CONFIG_") && !taken[line] {
			name, _, _ := strings.Cut(line, "=")
			lacking = append(lacking, name)
		}
	}
	return lacking, nil
}

// linuxTools are the packages of the commands that a build needs.
var linuxTools = map[string]string{
	"make": "make", "gcc": "gcc libc6-dev", "flex": "flex", "bison": "bison", "bc": "bc", "apt-get": "apt", "apt-cache": "apt", "dpkg-deb": "dpkg", "xz": "xz-utils",
}

// needs returns an error that names the missing commands and their packages.
func needs(commands ...string) error {
	var missing, packages []string
	for _, name := range commands {
		if _, err := exec.LookPath(name); err != nil {
			missing, packages = append(missing, name), append(packages, linuxTools[name])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("building a kernel needs %s: apt-get install %s", strings.Join(missing, ", "), strings.Join(packages, " "))
}

// run runs a command. onLine, if set, gets each line of its output. The error of a failed command has the last of these
// lines.
func (o LinuxOptions) run(ctx context.Context, dir string, onLine func(string), name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	said := lines{onLine: onLine}
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w%s", name, err, indented(strings.Join(said.last, "\n")))
	}
	return nil
}
