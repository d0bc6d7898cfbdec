// Command kubernetes puts commands of Kubernetes, unmodified and pinned, into a folder, for tests that search them on
// PATH. It keeps the built commands in the user's cache.
//
// usage: kubernetes FOLDER COMMAND…
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"synclab/bench/lab/upstream"
)

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: kubernetes FOLDER COMMAND…")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, folder string, commands []string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, name := range commands {
		path, version, err := upstream.Command(ctx, name, upstream.Options{Progress: func(line string) { fmt.Println(line) }})
		if err != nil {
			return err
		}
		link := filepath.Join(folder, name)
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(path, link); err != nil {
			return err
		}
		fmt.Println(link, version)
	}
	return nil
}
