package netns_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// kernelFor returns a User-mode Linux kernel for tests: SYNCLAB_TEST_KERNEL is its path.
func kernelFor(t *testing.T) string {
	t.Helper()
	path := os.Getenv("SYNCLAB_TEST_KERNEL")
	if path == "" {
		t.Skip("no User-mode Linux kernel: SYNCLAB_TEST_KERNEL is not set")
	}
	return path
}

// echo is a worker in a guest: it copies its standard input, and prints what it sees.
func echo() {
	lab, err := netns.Enter()
	if err != nil {
		fmt.Println("enter:", err)
		os.Exit(1)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	dir, _ := os.Getwd()
	fmt.Fprintf(os.Stderr, "machine %s, user namespace %t, folder %s\n", unix.ByteSliceToString(name.Release[:]), lab.User, dir)
	if err := os.WriteFile("written-in-the-guest", nil, 0o600); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(5)
}

// A worker in a guest gets its input, folder and environment, and its output and exit status arrive unchanged. The
// machine's files stay as they are.
func TestBoot(t *testing.T) {
	kernel := kernelFor(t)
	release, err := exec.Command(kernel, "--version").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var text []byte // all bytes, and more than the lines hold
	for sum := sha256.Sum256(nil); len(text) < 1<<18; sum = sha256.Sum256(sum[:]) {
		text = append(text, sum[:]...)
	}
	var stdout, stderr, log bytes.Buffer
	err = netns.Boot(t.Context(), kernel, bytes.NewReader(text), &stdout, &stderr, &log, []string{envRole + "=echo"})
	if code := netns.ExitCode(err); code != 5 {
		t.Errorf("exit code %d (%v), want 5; %s%s", code, err, stdout.String()[:min(200, stdout.Len())], stderr.String())
	}
	if !bytes.Equal(stdout.Bytes(), text) {
		t.Errorf("%d bytes of output differ from %d bytes of input", stdout.Len(), len(text))
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("machine %s, user namespace false, folder %s\n", bytes.TrimSpace(release), dir); stderr.String() != want {
		t.Errorf("the worker says %q, want %q", stderr.String(), want)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

func TestInterruptedGuest(t *testing.T) {
	kernel := kernelFor(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	watch := writerFunc(func(b []byte) (int, error) {
		if strings.Contains(string(b), "ready") {
			cancel()
		}
		return out.Write(b)
	})
	err := netns.Boot(ctx, kernel, nil, watch, os.Stderr, nil, []string{envRole + "=interrupted"})
	if code := netns.ExitCode(err); code != 3 {
		t.Errorf("exit code %d (%v), want the worker's 3", code, err)
	}
	if want := "ready\nlast record\n"; out.String() != want {
		t.Errorf("output %q, want %q", out.String(), want)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) != 0 {
		t.Errorf("left in %s: %v, %v", tmp, left, err)
	}
}

// A kernel that is none, or that ends before it is ready, is an error with what it printed.
func TestNoBoot(t *testing.T) {
	dir := t.TempDir()
	broken := filepath.Join(dir, "linux")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\necho no room for registers\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for kernel, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file",
		broken:                        "no room for registers",
	} {
		if err := netns.Boot(t.Context(), kernel, nil, nil, nil, nil, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Boot = %v, want an error that says %q", err, want)
		}
	}
}
