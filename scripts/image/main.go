// Command image builds an OCI image of synclab without a container daemon, as a folder in OCI image layout:
//
//  1. mmdebstrap makes a small Debian root from this machine's own package sources (root.go).
//  2. synclab and its shim are built; kube-proxy and a User-mode Linux kernel come from the user's cache, or are built
//     (programs.go).
//  3. An SBOM lists the packages of Debian and the Go modules of the programs (sbom.go).
//  4. Three layers are written: Debian, kube-proxy with the kernel, synclab (layout.go). The same commit with the same
//     packages gives the same bytes.
//
// usage: image [-out FOLDER] [-root TAR] [-kernel VERSION]
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

type options struct {
	out    string // folder of the image
	root   string // tar of the Debian root; empty: make one
	kernel string // version of Linux; empty: none
	commit string
	// epoch is the time of the commit: no file in the image is newer.
	epoch time.Time
}

func main() {
	var o options
	flag.StringVar(&o.out, "out", "bin/image", "`folder` for the image; it is replaced")
	flag.StringVar(&o.root, "root", "", "`tar` with the Debian root that an earlier build kept (default: make one with mmdebstrap)")
	flag.StringVar(&o.kernel, "kernel", "6.12", "`version` of the User-mode Linux kernel in the image, or empty for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := build(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		stop()
		os.Exit(1)
	}
}

func build(ctx context.Context, o options) error {
	if err := o.ofCommit(ctx); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "synclab-image-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if o.root == "" {
		o.root = filepath.Join(work, "root.tar")
		if err := makeRoot(ctx, o.root, o.epoch); err != nil {
			return err
		}
	}
	debian, err := readRoot(o.root, o.epoch)
	if err != nil {
		return err
	}
	foreign, own, err := programs(ctx, work, o)
	if err != nil {
		return err
	}
	packages, err := installed(debian.status)
	if err != nil {
		return fmt.Errorf("%s: %w", o.root, err)
	}
	sbom, err := writeSBOM(o, packages, append(own, foreign...))
	if err != nil {
		return err
	}
	own = append(own, file{name: "usr/local/share/synclab/sbom.spdx.json", text: sbom, mode: 0o644})
	digest, err := writeLayout(o, debian, layerOf(foreign), layerOf(own))
	if err != nil {
		return err
	}
	if err := os.WriteFile(o.out+".spdx.json", sbom, 0o644); err != nil {
		return err
	}
	fmt.Println(o.out, digest)
	return nil
}

// ofCommit sets the commit and its time. SOURCE_DATE_EPOCH takes precedence, as in other tools.
func (o *options) ofCommit(ctx context.Context) error {
	describe, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12").Output()
	if err != nil {
		return fmt.Errorf("the image is named after its commit: git describe: %w", err)
	}
	o.commit = strings.TrimSpace(string(describe))
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return fmt.Errorf("git log: %w", err)
		}
		seconds = strings.TrimSpace(string(out))
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH=%q: want the seconds since 1970", seconds)
	}
	o.epoch = time.Unix(unix, 0).UTC()
	return nil
}

// tool runs a program with its output on stderr.
func tool(ctx context.Context, env []string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it removes its folders
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is missing: install the package that has it", name)
	case err != nil:
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// platform is the architecture of the image: that of this machine.
const platform = runtime.GOARCH

// closeAll closes what was opened, and adds the errors to err.
func closeAll(err error, all ...io.Closer) error {
	for _, c := range all {
		err = errors.Join(err, c.Close())
	}
	return err
}
