package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	dirPrefix   = "synclab-lab-" // locked, or left behind by a killed run
	draftPrefix = "synclab-new-" // being made, not locked yet
	ownerName   = "owner"        // locked during the run; names the process for readers
	lockName    = "xtables.lock"
	draftAge    = time.Hour
)

// dir is a run's private directory, protected by a lock on its owner file. A lock is safer than a recorded process id:
// it works across PID namespaces, and ids are reused.
type dir struct {
	path  string
	owner *os.File
}

// newDir makes a directory under root. It renames the directory to its final name only after locking it, so that Sweep
// never finds an unlocked one.
func newDir(root string) (*dir, error) {
	draft, err := os.MkdirTemp(root, draftPrefix)
	if err != nil {
		return nil, elsewhere(err)
	}
	d, err := claim(draft)
	if err != nil {
		os.RemoveAll(draft)
		return nil, elsewhere(err)
	}
	return d, nil
}

// elsewhere adds a remedy if the temporary folder is full or not writable.
func elsewhere(err error) error {
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT, unix.EACCES, unix.EROFS, unix.ENOENT} {
		if errors.Is(err, cause) {
			return fmt.Errorf("%w: let TMPDIR name another folder", err)
		}
	}
	return err
}

func claim(draft string) (*dir, error) {
	owner, err := os.OpenFile(filepath.Join(draft, ownerName), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(draft), dirPrefix+strings.TrimPrefix(filepath.Base(draft), draftPrefix))
	err = errors.Join(
		unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB),
		note(owner),
		os.WriteFile(filepath.Join(draft, lockName), nil, 0o600),
		os.Rename(draft, path),
	)
	if err != nil {
		owner.Close()
		return nil, err
	}
	return &dir{path: path, owner: owner}, nil
}

func note(owner *os.File) error {
	_, err := fmt.Fprintf(owner, "pid %d\nstart %s\n", os.Getpid(), startTime())
	return err
}

// startTime returns this process's start in clock ticks since boot: field 22 of /proc/self/stat. It counts fields after
// the command name, which may contain anything.
func startTime() string {
	b, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return "unknown"
	}
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')')+1:]), " ")
	if fields := strings.Fields(rest); len(fields) > 19 {
		return fields[19]
	}
	return "unknown"
}

// TempDir makes a private folder for a run. If the run is killed before it calls remove, a later run removes the folder.
func TempDir() (path string, remove func(), err error) {
	d, err := newDir(os.TempDir())
	if err != nil {
		return "", nil, fmt.Errorf("temporary folder: %w", err)
	}
	return d.path, d.remove, nil
}

func (d *dir) remove() {
	os.RemoveAll(d.path)
	d.owner.Close()
}

// Sweep removes the directories under root of runs that have ended, and returns their paths. It touches only
// directories of this user.
func Sweep(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	var swept []string
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if !ours(entry) || !dead(entry, path) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return swept, fmt.Errorf("sweep: %w", err)
		}
		swept = append(swept, path)
	}
	return swept, nil
}

// ours reports whether the entry is a directory that a run of this user made: all users share /tmp.
func ours(entry fs.DirEntry) bool {
	name := entry.Name()
	if !entry.IsDir() || !strings.HasPrefix(name, dirPrefix) && !strings.HasPrefix(name, draftPrefix) {
		return false
	}
	about, err := entry.Info()
	if err != nil {
		return false
	}
	stat, ok := about.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func dead(entry fs.DirEntry, path string) bool {
	if strings.HasPrefix(entry.Name(), draftPrefix) {
		about, err := entry.Info()
		return err == nil && time.Since(about.ModTime()) > draftAge
	}
	owner, err := os.Open(filepath.Join(path, ownerName))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist) // an interrupted sweep
	}
	defer owner.Close()
	return unix.Flock(int(owner.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}
