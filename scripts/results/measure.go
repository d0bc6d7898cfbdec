package main

import (
	"bufio"
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

// doneFile has the commit of the code that ran all commands of a part, and these commands.
const doneFile = "measured"

// outputFile has the standard output of the commands of a part.
const outputFile = "output.txt"

// measured returns the commit of the code that measured the part; empty: it was not measured completely, or with other
// commands.
func (m *measurement) measured() string {
	text, _ := os.ReadFile(filepath.Join(m.dir, doneFile))
	code, commands, _ := strings.Cut(string(text), "\n")
	if commands != m.commands() {
		return ""
	}
	return code
}

// commands returns the commands of the part, one per line.
func (m *measurement) commands() string {
	var b strings.Builder
	for _, command := range m.part.Commands {
		b.WriteString(m.values.expand(command, m.dir) + "\n")
	}
	return b.String()
}

// measure runs the commands of the part. It starts anew, because half a part is of no use.
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
		command, verdict := strings.CutPrefix(command, "-")
		args := strings.Fields(m.values.expand(command, m.dir))
		fmt.Printf("-- %s %s\n", programOf(args, m.program), strings.Join(args, " "))
		if last := len(args) - 1; args[last] == "&" {
			stop, err := m.start(ctx, args[:last])
			if err != nil {
				return fmt.Errorf("%s %s: %w", m.program, args[0], err)
			}
			defer stop()
			continue
		}
		cmd := m.command(ctx, args)
		cmd.Stdout = io.MultiWriter(os.Stdout, file)
		if err := cmd.Run(); err != nil && (!verdict || cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1) {
			return fmt.Errorf("%s %s: %w", m.program, args[0], err)
		}
	}
	return errors.Join(file.Close(), os.WriteFile(filepath.Join(m.dir, doneFile), []byte(code+"\n"+m.commands()), 0o644))
}

// programOf returns what runs a command: sh for a shell script of the repository, synclab for all others.
func programOf(args []string, synclab string) string {
	if strings.HasSuffix(args[0], ".sh") {
		return "sh"
	}
	return synclab
}

func (m *measurement) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, programOf(args, m.program), args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // lets it clean up
	cmd.WaitDelay = time.Minute
	return cmd
}

// start starts a command that runs beside the next ones, and waits for its first line, which says that it is ready.
func (m *measurement) start(ctx context.Context, args []string) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := m.command(ctx, args)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	stop = func() {
		cancel()
		_ = cmd.Wait() // it ends by the signal
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		stop()
		return nil, fmt.Errorf("it ended before its first line: %w", err)
	}
	return stop, nil
}

// program excludes files whose changes do not affect measurements, as the Makefile does: those that results are written to, and
// tests.
var program = []string{"--", ".", ":!*.md", ":!*.png", ":!docs/results.yaml", ":!.ci", ":!*_test.go"}

// sourceCommit returns the newest commit that changed the program. It refuses uncommitted changes of the source,
// unless they are allowed.
func sourceCommit(allowed bool) (string, error) {
	changed, err := git(append([]string{"status", "--porcelain"}, program...)...)
	if err != nil {
		return "", err
	}
	if changed != "" && !allowed {
		return "", fmt.Errorf("the source has uncommitted changes, and a published number needs a commit:\n%s", changed)
	}
	return git(append([]string{"log", "-1", "--format=%H"}, program...)...)
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
