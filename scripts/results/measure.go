package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// measurement is one part with its folder.
type measurement struct {
	part    part
	dir     string
	values  values
	program string
}

// doneFile holds the commit of the code that all commands of a part ran with.
const doneFile = "measured"

// outputFile holds what the commands of a part printed to standard output.
const outputFile = "output.txt"

// measured is the commit of the code that the part was measured with; empty: it was not, or not whole.
func (m *measurement) measured() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, doneFile))
	return strings.TrimSpace(string(text))
}

// measure runs the commands of the part. It starts anew: half a part is worth nothing.
func (m *measurement) measure(ctx context.Context, code string) error {
	if err := os.RemoveAll(m.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(m.dir, 0o755); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(m.dir, outputFile))
	if err != nil {
		return err
	}
	defer file.Close()
	for _, command := range m.part.Commands {
		args := strings.Fields(m.values.expand(command, m.dir))
		fmt.Printf("-- %s %s\n", m.program, strings.Join(args, " "))
		cmd := exec.CommandContext(ctx, m.program, args...)
		cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, file), os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it cleans up
		cmd.WaitDelay = time.Minute
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s %s: %w", m.program, args[0], err)
		}
	}
	return errors.Join(file.Close(), os.WriteFile(filepath.Join(m.dir, doneFile), []byte(code+"\n"), 0o644))
}

// published are the files that results are written into: changing them does not change what is measured.
var published = []string{"--", ".", ":!*.md", ":!docs"}

// sourceCommit is the newest commit that changed more than documents. Uncommitted changes of the source are refused,
// unless they are allowed.
func sourceCommit(allowed bool) (string, error) {
	changed, err := git(append([]string{"status", "--porcelain"}, published...)...)
	if err != nil {
		return "", err
	}
	if changed != "" && !allowed {
		return "", fmt.Errorf("the source has uncommitted changes, and a published number needs a commit:\n%s", changed)
	}
	return git(append([]string{"log", "-1", "--format=%H"}, published...)...)
}

func git(args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command("git", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(string(out)), nil
}
