package upstream

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"synclab/bench/lab/temporary"
)

// kubernetes is the path of the module. It is built with the published modules instead of its staging folders.
const kubernetes = "k8s.io/kubernetes"

// builder builds one command of one version.
type builder struct {
	Options
	cache              Cache
	command            string
	program            string // path of its package
	version, goVersion string
	ldflags            string
	// mod and sum are the files of the module to build in; nil: made for a version of Kubernetes that is not pinned.
	mod, sum []byte
	staging  string // v0.36.3 for v1.36.3: the version of the modules in Kubernetes' staging folders
}

func (b *builder) say(format string, args ...any) {
	if b.Progress != nil {
		b.Progress(fmt.Sprintf(format, args...))
	}
}

// build writes the command to path. It ignores the user's GOFLAGS.
func (b *builder) build(ctx context.Context, path string) error {
	start := time.Now()
	b.say("building %s %s with %s: some minutes and 3 GB of disk, once", b.command, b.version, b.goVersion)
	private, err := privateFolder(b.cache.dir)
	if err != nil {
		return fmt.Errorf("build %s: %w", b.version, err)
	}
	defer private.Remove()
	dir := private.Path
	if err := b.module(ctx, dir); err != nil {
		return fmt.Errorf("build %s: %w", b.version, err)
	}
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false"}
	if b.mod == nil {
		args = append(args, "-mod=mod")
	}
	args = append(args, "-ldflags", "-s -w"+b.ldflags, "-o", path, b.program)
	if _, err := Go(ctx, dir, []string{"GOFLAGS=", "CGO_ENABLED=0"}, b.counter(), args...); err != nil {
		return fmt.Errorf("build %s: %w", b.version, err)
	}
	b.say("built %s %s in %s", b.command, b.version, time.Since(start).Round(time.Second))
	return nil
}

// checkout builds a command of a checkout, and returns its path in the cache. The command reports what git describes.
func checkout(ctx context.Context, name string, opts Options) (string, error) {
	source, err := filepath.Abs(opts.Source)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(source, "cmd", name)); err != nil {
		return "", fmt.Errorf("no checkout with a command %s: %w", name, err)
	}
	cache, err := OpenCache(opts.Cache)
	if err != nil {
		return "", err
	}
	b := builder{Options: opts, command: name, version: "of " + source, goVersion: "go"}
	b.say("building %s of %s", name, source)
	said, described := "k8s.io/component-base/version.gitVersion", "v0.0.0-source"
	if name == "synclab" {
		said = "synclab/bench/lab/machine.Commit"
	}
	if text, err := git(ctx, "-C", source, "describe", "--tags", "--match=v*", "--always", "--dirty"); err == nil {
		described = text
	}
	private, err := temporary.New(cache.dir)
	if err != nil {
		return "", err
	}
	defer private.Remove()
	path := filepath.Join(private.Path, name)
	// GOWORK= finds the workspace that the checkout's vendored modules belong to.
	args := []string{"build", "-v", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -X " + said + "=" + described, "-o", path, "./cmd/" + name}
	if _, err := Go(ctx, source, []string{"GOFLAGS=", "GOWORK=", "CGO_ENABLED=0"}, b.counter(), args...); err != nil {
		return "", err
	}
	return cache.keep(path, "source-"+name+"-")
}

// counter returns a function that turns the output of go build into an occasional progress line.
func (b *builder) counter() func(string) {
	const often = 100
	modules, packages := 0, 0
	return func(line string) {
		if strings.HasPrefix(line, "go: downloading ") {
			if modules++; modules%20 == 1 {
				b.say("building %s %s: fetching modules, %d so far", b.command, b.version, modules)
			}
		} else if !strings.HasPrefix(line, "go: ") {
			if packages++; packages%often == 0 {
				b.say("building %s %s: %d packages compiled", b.command, b.version, packages)
			}
		}
	}
}

//go:embed kubernetes.mod
var pinnedMod []byte

//go:embed kubernetes.sum
var pinnedSum []byte

// origin returns the source of a command. For a pinned version it is the digest of its module files, which contain
// the digests of all modules. Otherwise it is the version, whose digest is in Go's checksum database.
func (b *builder) origin() string {
	if b.mod == nil {
		return kubernetes + "@" + b.version
	}
	digest := sha256.New()
	digest.Write(b.mod)
	digest.Write(b.sum)
	return fmt.Sprintf("sha256:%x", digest.Sum(nil))
}

// module prepares dir as the module to build in. For versions that are not pinned, it copies the replace lines of
// k8s.io/kubernetes, with published modules instead of staging folders, and the lines that set Go's behaviour.
func (b *builder) module(ctx context.Context, dir string) error {
	if b.mod != nil {
		return errors.Join(writeIn(dir, "go.mod", b.mod), writeIn(dir, "go.sum", b.sum))
	}
	out, err := Go(ctx, dir, []string{"GOFLAGS=-mod=mod"}, nil, "mod", "download", "-json", kubernetes+"@"+b.version)
	var module struct{ GoMod, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr == nil && module.Error != "" {
		return fmt.Errorf("%s%s", module.Error, advice(module.Error))
	}
	if err != nil {
		return err
	}
	out, err = Go(ctx, dir, nil, nil, "mod", "edit", "-json", module.GoMod)
	if err != nil {
		return err
	}
	text, err := b.goMod(out)
	if err != nil {
		return fmt.Errorf("%s: %w", module.GoMod, err)
	}
	return writeIn(dir, "go.mod", []byte(text))
}

// privateFolder makes a folder that only this user can read, with a module in it, because go searches all parent
// folders.
func privateFolder(parent string) (*temporary.Dir, error) {
	dir, err := temporary.New(parent)
	if err != nil {
		return nil, err
	}
	if err := writeIn(dir.Path, "go.mod", []byte("module synclab/private\n")); err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	return dir, nil
}

func writeIn(dir, name string, text []byte) error {
	return os.WriteFile(filepath.Join(dir, name), text, 0o600)
}

// goMod returns a go.mod made from the output of `go mod edit -json` for the go.mod of k8s.io/kubernetes.
func (b *builder) goMod(upstream []byte) (string, error) {
	var mod struct {
		Go      string
		GoDebug []struct{ Key, Value string }
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal(upstream, &mod); err != nil {
		return "", err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "module synclab/%s\n\ngo %s\n\n", b.command, mod.Go)
	for _, setting := range mod.GoDebug {
		fmt.Fprintf(&text, "godebug %s=%s\n\n", setting.Key, setting.Value)
	}
	fmt.Fprintf(&text, "require %s %s\n\nreplace (\n", kubernetes, b.version)
	replaced := 0
	for _, r := range mod.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			fmt.Fprintf(&text, "\t%[1]s => %[1]s %[2]s\n", r.Old.Path, b.staging)
			replaced++
		}
	}
	text.WriteString(")\n")
	if replaced == 0 {
		return "", fmt.Errorf("the go.mod has no replace lines with staging folders")
	}
	return text.String(), nil
}
