package shim

import (
	"context"
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"synclab/bench/lab/temporary"
	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
)

// source has the program's source files, because Synclab may run without its repository.
//
//go:embed command/*.go command/*.s
var source embed.FS

// Beside is the name of the program next to the executable in an image. Only an executable that was linked with its
// digest uses it (-X synclab/bench/lab/shim.besideDigest=sha256:…): elsewhere, another user may have put a file there.
const Beside = "synclab-shim"

var besideDigest string

// ldflags start the program in its own code instead of the Go runtime (command/main.go).
const ldflags = "-s -w -E main.start"

// Command returns the path of the program: next to the executable of an image, or in the cache. It builds the program if necessary
// (a second with a warm Go cache). The parent calls it; inside the namespace it works only after that build.
func Command(ctx context.Context) (string, error) {
	if !slices.Contains([]string{"amd64", "arm64"}, runtime.GOARCH) {
		return "", fmt.Errorf("shim: it starts in assembly that exists for linux/amd64 and linux/arm64, not for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	if exe, err := os.Executable(); err == nil && besideDigest != "" {
		path := filepath.Join(filepath.Dir(exe), Beside)
		if err := outfile.Trusted(path); err != nil {
			return "", fmt.Errorf("shim: %w", err)
		}
		if digest, err := upstream.Digest(path); err != nil || digest != besideDigest {
			return "", fmt.Errorf("shim: %s is not the one that this program was built with: install both again (%s, want %s, %v)", path, digest, besideDigest, err)
		}
		return path, nil
	}
	cache, err := upstream.OpenCache("")
	if err != nil {
		return "", fmt.Errorf("shim: %w", err)
	}
	path, err := cache.Get(ctx, "shim-"+fingerprint(), "", func(path string) error { return build(ctx, path) })
	if err != nil {
		return "", fmt.Errorf("shim: %w", err)
	}
	return path, nil
}

// fingerprint changes with the program's source and with the Go version.
func fingerprint() string {
	hash := sha256.New()
	err := eachSource(func(name string, text []byte) error {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
		return nil
	})
	if err != nil {
		panic(err) // cannot happen: the files are embedded
	}
	fmt.Fprint(hash, runtime.Version(), runtime.GOARCH, ldflags)
	return fmt.Sprintf("%x", hash.Sum(nil)[:8])
}

func eachSource(do func(name string, text []byte) error) error {
	return fs.WalkDir(source, "command", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := source.ReadFile(name)
		if err != nil {
			return err
		}
		return do(filepath.Base(name), text)
	})
}

// build writes the source as a module and builds it. It ignores the user's Go flags.
func build(ctx context.Context, path string) error {
	private, err := temporary.New("")
	if err != nil {
		return err
	}
	defer private.Remove()
	dir := private.Path
	err = eachSource(func(name string, text []byte) error { return os.WriteFile(filepath.Join(dir, name), text, 0o644) })
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module shim\n\ngo 1.26\n"), 0o644); err != nil {
		return err
	}
	env := []string{"GOFLAGS=", "CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + runtime.GOARCH}
	_, err = upstream.Go(ctx, dir, env, nil, "build", "-buildmode=exe", "-trimpath", "-buildvcs=false", "-ldflags", ldflags, "-o", path, ".")
	return err
}
