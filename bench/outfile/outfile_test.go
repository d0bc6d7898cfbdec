package outfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Write never writes to a file that another user put in place of its target.
func TestWriteFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "index.html")
	for name, plant := range map[string]func() error{
		"symlink":   func() error { return os.Symlink(victim, path) },
		"hard link": func() error { return os.Link(victim, path) },
		"FIFO":      func() error { return unix.Mkfifo(path, 0o666) },
		"nothing":   func() error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(os.WriteFile(victim, []byte("secret"), 0o600), plant()); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(path)
			if err := Write(path, []byte("page"), 0o640); err != nil {
				t.Fatal(err)
			}
			stat, err := os.Lstat(path)
			if err != nil || stat.Mode() != 0o640 {
				t.Errorf("mode %v, %v", stat.Mode(), err)
			}
			if got, err := os.ReadFile(path); string(got) != "page" || err != nil {
				t.Errorf("wrote %q, %v", got, err)
			}
			if got, err := os.ReadFile(victim); string(got) != "secret" || err != nil {
				t.Errorf("the file that was linked to: %q, %v", got, err)
			}
		})
	}
}

// TestMain lets a test start the test binary again, as a process that is killed while it writes.
func TestMain(m *testing.M) {
	if path := os.Getenv("SYNCLAB_TEST_WRITES"); path != "" {
		_ = WriteWith(path, 0o600, func(io.Writer) error {
			fmt.Println("writes")
			time.Sleep(time.Hour) // until the test kills it; an empty select is a deadlock without cgo
			return nil
		})
	}
	os.Exit(m.Run())
}

// The next output in a folder removes the draft of a killed process, and not before that process is killed.
func TestDraftOfAKilledProcess(t *testing.T) {
	dir := t.TempDir()
	killed := exec.Command(os.Args[0])
	killed.Env = append(os.Environ(), "SYNCLAB_TEST_WRITES="+filepath.Join(dir, "killed"))
	out, err := killed.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "writes\n" || err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	writes := func(name string) (entries int) {
		t.Helper()
		if err := Write(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		left, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(left)
	}
	if entries := writes("one"); entries != 2 {
		t.Errorf("%d files; want the output and the draft of the running process", entries)
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()
	if entries := writes("two"); entries != 2 {
		t.Errorf("%d files; want the two outputs", entries)
	}
}

// A failed write keeps the old file and leaves no other file.
func TestFailedWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	err := WriteWith(path, 0o600, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 1<<20))
		return errors.Join(err, failed)
	})
	entries, readErr := os.ReadDir(dir)
	got, _ := os.ReadFile(path)
	if !errors.Is(err, failed) || readErr != nil || len(entries) != 1 || string(got) != "old" {
		t.Errorf("%v; %d files, %q", err, len(entries), got)
	}
}

// Open and Append refuse a file that is not regular, without waiting.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(os.WriteFile(at("file"), []byte("text"), 0o600), unix.Mkfifo(at("fifo"), 0o600), os.Symlink(at("file"), at("symlink")),
		os.WriteFile(at("twice"), nil, 0o600), os.Link(at("twice"), at("hardlink")), os.Mkdir(at("folder"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name         string
		read, append bool
	}{
		{"file", true, true}, {"new", false, true}, {"fifo", false, false}, {"symlink", true, false}, {"hardlink", true, false}, {"folder", false, false},
	} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if f, err := Open(at(c.name)); (err == nil) != c.read {
				t.Errorf("open %s: %v", c.name, err)
			} else if err == nil {
				f.Close()
			}
			if f, err := Append(at(c.name), 0o600); (err == nil) != c.append {
				t.Errorf("append to %s: %v", c.name, err)
			} else if err == nil {
				f.Close()
			}
		}()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("%s: still waiting", c.name)
		}
	}
}

// Write writes to descriptors that the shell opened: /dev/fd/3, /dev/stdout.
func TestWriteToADescriptor(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Write(fmt.Sprintf("/dev/fd/%d", f.Fd()), []byte("text"), 0o600); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(f.Name()); string(text) != "text" || err != nil {
		t.Errorf("wrote %q, %v", text, err)
	}
}

// Files in /dev/shm are created and replaced like other files.
func TestWriteToSharedMemory(t *testing.T) {
	dir, err := os.MkdirTemp("/dev/shm", "synclab-test-")
	if errors.Is(err, os.ErrNotExist) {
		dir = t.TempDir() // this machine has no /dev/shm
	} else if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "file")
	for _, content := range []string{"new", "replaced"} {
		if err := Write(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(path); string(text) != content || err != nil {
			t.Errorf("wrote %q, %v; want %q", text, err, content)
		}
	}
}

// Read refuses a file that would fill the memory.
func TestReadIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, readLimit+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("read a file that is too large")
	}
}

// Unpack refuses a file that would fill the memory when unpacked.
func TestUnpackIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file.gz")
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, packed.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	if text, err := Unpack(path, 1<<20); err != nil || len(text) != 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if _, err := Unpack(path, 1<<20-1); err == nil {
		t.Error("unpacked a file that is too large")
	}
}

// OpenInput refuses FIFOs and devices without waiting, reads what the shell opened, and ends with the context.
func TestInput(t *testing.T) {
	dir := t.TempDir()
	fifo, zero := filepath.Join(dir, "fifo"), filepath.Join(dir, "zero")
	if err := errors.Join(unix.Mkfifo(fifo, 0o600), os.Symlink("/dev/zero", zero)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{fifo, zero, dir} {
		if _, err := ReadInput(t.Context(), path); !errors.Is(err, ErrNotRegular) {
			t.Errorf("%s: %v", path, err)
		}
	}
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	if _, err := to.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f, err := OpenInput(ctx, fmt.Sprintf("/dev/fd/%d", from.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := make([]byte, 4)
	if _, err := io.ReadFull(f, text); err != nil || string(text) != "text" {
		t.Errorf("read %q, %v", text, err)
	}
	stdin, _ := io.Pipe()
	for name, r := range map[string]io.Reader{"pipe": f, "stdin": Interruptible(ctx, stdin)} {
		ended := make(chan error)
		go func() {
			_, err := io.ReadAll(r)
			ended <- err
		}()
		cancel()
		if err := <-ended; err == nil {
			t.Errorf("%s: the read ended without an error", name)
		}
	}
	to.Close()
}
