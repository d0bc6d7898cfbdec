// Package temporary makes folders that do not outlive their process for long: if the process is killed, a later one
// removes them.
//
//  1. New makes a folder and locks the file `owner` in it. The kernel releases the lock when the process ends.
//  2. Sweep removes the folders whose lock it gets.
//
// A lock is safer than a recorded process ID: it works across PID namespaces, and IDs are reused.
//
// Not covered: file systems without locks. Folders on them stay.
package temporary

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	prefix    = "synclab-tmp-"
	ownerName = "owner"
)

// Dir is a folder that only this user can read.
type Dir struct {
	Path  string
	owner *os.File // locked
}

// New makes a folder under root, by default in the temporary folder of the system.
func New(root string) (*Dir, error) {
	if root != "" {
		return newDir(root)
	}
	d, err := newDir(os.TempDir())
	for _, cause := range []error{unix.ENOSPC, unix.EDQUOT, unix.EACCES, unix.EROFS, unix.ENOENT} {
		if errors.Is(err, cause) {
			return nil, fmt.Errorf("temporary folder: %w: let TMPDIR name another folder", err)
		}
	}
	return d, err
}

func newDir(root string) (*Dir, error) {
	const tries = 100
	var d *Dir
	err := errSwept
	for try := 0; try < tries && errors.Is(err, errSwept); try++ {
		var path string
		if path, err = os.MkdirTemp(root, prefix); err != nil {
			return nil, err
		}
		if d, err = claim(path); err != nil {
			_ = os.RemoveAll(path)
		}
	}
	return d, err
}

// errSwept means that another process removed a folder before it was locked.
var errSwept = errors.New("another process removes each new temporary folder")

func claim(path string) (*Dir, error) {
	owner, err := os.OpenFile(filepath.Join(path, ownerName), os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errSwept
	}
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	err = unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) || unix.Fstat(int(owner.Fd()), &stat) == nil && stat.Nlink == 0 {
		owner.Close()
		return nil, errSwept
	}
	return &Dir{Path: path, owner: owner}, nil // without locks on this file system, Sweep gets none either
}

// Remove removes the folder with all that is in it.
func (d *Dir) Remove() error { return errors.Join(remove(d.Path), d.owner.Close()) }

// remove removes the owner file last: a folder without it has no content.
func remove(path string) error {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its process removed it
	}
	for _, entry := range entries {
		if entry.Name() != ownerName {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, entry.Name())))
		}
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// Sweep removes the folders under root whose process has ended, and returns their paths. It touches only folders of
// this user, and follows no links.
func Sweep(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	var swept []string
	for _, entry := range entries {
		path := filepath.Join(root, entry.Name())
		if !ours(entry) {
			continue
		}
		removed, failed := sweep(path)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("sweep: %w", failed))
		} else if removed {
			swept = append(swept, path)
		}
	}
	return swept, err
}

// ours reports whether a process of this user made the folder: all users share /tmp.
func ours(entry fs.DirEntry) bool {
	if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
		return false
	}
	about, err := entry.Info()
	if err != nil {
		return false
	}
	stat, ok := about.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid()
}

func sweep(path string) (removed bool, err error) {
	owner, err := os.OpenFile(filepath.Join(path, ownerName), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return os.Remove(path) == nil, nil // empty: its process was killed, or makes another one
	}
	if err != nil {
		return false, err
	}
	defer owner.Close()
	if unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	return true, remove(path)
}
