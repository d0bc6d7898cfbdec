package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// ErrNoGo means that the machine has no Go. Other errors wrap it.
var ErrNoGo = errors.New("building needs Go, which is not on PATH: install it (https://go.dev/dl)")

// Go runs the go command in a folder. onLine, if set, gets each line of its standard error. The error of a failed
// command has the last of these lines.
func Go(ctx context.Context, dir string, env []string, onLine func(string), args ...string) (stdout []byte, err error) {
	path, err := exec.LookPath("go")
	if err != nil {
		return nil, ErrNoGo
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = dir
	// A workspace above the folder would change the build.
	cmd.Env = slices.Concat(homeless(), os.Environ(), []string{"GOWORK=off"}, env)
	var out bytes.Buffer
	stderr := lines{onLine: onLine}
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		said := strings.Join(stderr.last, "\n")
		return out.Bytes(), fmt.Errorf("go %s: %w%s%s", args[0], err, indented(said), advice(said))
	}
	return out.Bytes(), nil
}

// homeless returns folders for go's caches if HOME, their usual parent, is not set.
func homeless() []string {
	if os.Getenv("HOME") != "" {
		return nil
	}
	cache, err := OpenCache("")
	if err != nil {
		return nil
	}
	return []string{"GOCACHE=" + cache.Path("go-build"), "GOPATH=" + cache.Path("go")}
}

// GoVersion returns the version of the go command, such as go1.26.8.
func GoVersion(ctx context.Context) (string, error) {
	dir, err := privateFolder("")
	if err != nil {
		return "", err
	}
	defer dir.Remove()
	out, err := Go(ctx, dir.Path, nil, nil, "env", "GOVERSION")
	return strings.TrimSpace(string(out)), err
}

func indented(text string) string {
	if text == "" {
		return ""
	}
	return "\n\t" + strings.ReplaceAll(text, "\n", "\n\t")
}

// advice returns a remedy for the error text of a failed go command.
func advice(said string) string {
	for _, sign := range []string{"dial tcp", "no such host", "connection refused", "network is unreachable", "i/o timeout", "module lookup disabled", "proxyconnect", "TLS handshake"} {
		if strings.Contains(said, sign) {
			return "\nthe modules could not be fetched: connect this machine to a Go module proxy (GOPROXY), once"
		}
	}
	if strings.Contains(said, "no space left") {
		return "\nthe build needs some 3 GB in GOCACHE and GOMODCACHE"
	}
	return ""
}

// lines calls onLine for each line written, and keeps the last few.
type lines struct {
	onLine  func(string)
	partial []byte
	last    []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.partial = append(l.partial, p...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.partial = rest
		text := string(line)
		const kept = 8
		if l.last = append(l.last, text); len(l.last) > kept {
			l.last = l.last[1:]
		}
		if l.onLine != nil {
			l.onLine(text)
		}
	}
}
