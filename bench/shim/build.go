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

	"synclab/bench/upstream"
)

// source is the program's: the lab may run where its repository is not.
//
//go:embed command/*.go command/*.s
var source embed.FS

// Beside is the name under which `make build` may put the program beside the executable.
const Beside = "synclab-shim"

// ldflags make the program start in its own code instead of the Go runtime's.
const ldflags = "-s -w -E main.start"

// Command is the path of the program: beside the executable, or in the cache, where it is built first if need be (a
// second with a warm Go cache). A lab's parent calls it; inside the namespace it works as well, once it is built.
func Command(ctx context.Context) (string, error) {
	if err := supported(); err != nil {
		return "", err
	}
	if exe, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(exe), Beside)
		if stat, err := os.Stat(path); err == nil && stat.Mode().IsRegular() {
			return path, nil
		}
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

// fingerprint changes with the program and with the Go that builds it.
func fingerprint() string {
	hash := sha256.New()
	err := eachSource(func(name string, text []byte) error {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
		return nil
	})
	if err != nil {
		panic(err) // it is in this binary
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

// build makes a module of the source and builds it. Flags that the user's Go has for other programs are not taken over.
func build(ctx context.Context, path string) error {
	dir, err := os.MkdirTemp("", "synclab-shim-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
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
