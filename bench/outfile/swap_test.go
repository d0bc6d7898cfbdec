package outfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode/utf8"
)

// The owner of a folder puts links in place of what a process creates in it. No write and no sweep touches what is
// outside of the folder.
func TestSwappedNames(t *testing.T) {
	dir, victim := t.TempDir(), t.TempDir()
	secret := filepath.Join(victim, "file")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	var swaps atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			entries, _ := os.ReadDir(dir)
			for i, entry := range entries {
				at := filepath.Join(dir, entry.Name())
				to := []string{victim, secret}[i%2]
				if strings.HasPrefix(entry.Name(), draftPrefix) && entry.Type()&os.ModeSymlink == 0 &&
					os.Rename(at, filepath.Join(dir, "kept")) == nil && os.Symlink(to, at) == nil {
					swaps.Add(1)
				}
				os.RemoveAll(filepath.Join(dir, "kept"))
			}
		}
	}()
	const wanted, most = 200, 50_000
	written := 0
	for range most {
		if swaps.Load() >= wanted {
			break
		}
		if Write(filepath.Join(dir, "page"), make([]byte, 1<<18), 0o644) == nil { // a file that was renamed is an error
			written++
		}
	}
	close(stop)
	<-stopped
	if swaps.Load() == 0 || written == 0 {
		t.Errorf("%d swaps, %d files written", swaps.Load(), written)
	}
	entries, err := os.ReadDir(victim)
	text, readErr := os.ReadFile(secret)
	if err := errors.Join(err, readErr); err != nil || len(entries) != 1 || string(text) != "secret" {
		t.Errorf("outside of the folder: %v, %q, %v", entries, text, err)
	}
}

// Names that file systems do not take are shortened, and stay different.
func TestName(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, name := range []string{"short", long[:200], long, long + "a", long + "b"} {
		short := Name(name)
		if (short == name) != (len(name) <= 200) || len(short) > 200 || !utf8.ValidString(short) {
			t.Errorf("%d bytes: %q", len(name), short)
		}
		if err := os.WriteFile(filepath.Join(t.TempDir(), short+".index.html"), nil, 0o600); err != nil {
			t.Error(err)
		}
	}
	if Name(long+"a") == Name(long+"b") {
		t.Error("two names have one file")
	}
}
