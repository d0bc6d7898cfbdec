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
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"synclab/bench/outfile"
)

const (
	prefix    = "synclab-tmp-"
	ownerName = "owner"
)

// Dir is a folder that only this user can read. It is opened once, and removed by its descriptor.
type Dir struct {
	Path         string
	parent, root *os.Root
	owner        *os.File // locked
}

// New makes a folder under root, by default in the temporary folder of the system.
func New(root string) (*Dir, error) {
	if root != "" {
		return newDir(root)
	}
	// Programs in it run by their paths.
	if err := outfile.Trusted(os.TempDir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("temporary folder: %w: let TMPDIR name another folder", err)
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
	parent, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	const tries = 100
	err = errSwept
	for try := 0; try < tries && errors.Is(err, errSwept); try++ {
		name := prefix + rand.Text()
		if err = parent.Mkdir(name, 0o700); err != nil {
			break
		}
		d := &Dir{Path: filepath.Join(root, name), parent: parent}
		if err = d.claim(); err == nil {
			return d, nil
		}
		_ = parent.Remove(name)
	}
	return nil, errors.Join(err, parent.Close())
}

// errSwept means that another process removed a folder before it was locked.
var errSwept = errors.New("another process removes each new temporary folder")

// claim opens and locks a new folder, which is empty: a folder with content was put in its place.
func (d *Dir) claim() error {
	root, err := d.parent.OpenRoot(filepath.Base(d.Path))
	if errors.Is(err, fs.ErrNotExist) {
		return errSwept
	}
	if err != nil {
		return err
	}
	d.root = root
	stat, err := root.Stat(".")
	if err == nil && !own(stat) {
		err = fmt.Errorf("%s: another user put a folder in place of the new one", d.Path)
	}
	entries, failed := fs.ReadDir(root.FS(), ".")
	if err = errors.Join(err, failed); err == nil && len(entries) > 0 {
		err = fmt.Errorf("%s: another folder is in place of the new one", d.Path)
	}
	if err == nil {
		d.owner, err = root.OpenFile(ownerName, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	}
	if err == nil {
		var stat unix.Stat_t
		err = unix.Flock(int(d.owner.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && (unix.Fstat(int(d.owner.Fd()), &stat) != nil || stat.Nlink > 0) {
			return nil // without locks on this file system, Sweep gets none either
		}
		d.owner.Close()
		err = errSwept
	}
	root.Close()
	if errors.Is(err, fs.ErrNotExist) {
		return errSwept
	}
	return err
}

// Remove removes the folder with all that is in it. A second call is no error.
func (d *Dir) Remove() error {
	err := remove(d.parent, d.root, filepath.Base(d.Path))
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return errors.Join(err, d.root.Close(), d.parent.Close(), d.owner.Close())
}

// remove empties an opened folder and removes its name. The owner file is the last: a folder without it has no content.
func remove(parent, root *os.Root, name string) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	for _, entry := range entries {
		if entry.Name() != ownerName {
			err = errors.Join(err, root.RemoveAll(entry.Name()))
		}
	}
	if err != nil {
		return err
	}
	opened, err := root.Stat(".")
	if err == nil {
		err = root.RemoveAll(ownerName)
	}
	if named, failed := parent.Lstat(name); err != nil || failed != nil || !os.SameFile(opened, named) {
		return err // its process removed it, or another user renamed it
	}
	return parent.RemoveAll(name)
}

// Sweep removes the folders under root whose process has ended, and returns their paths. It touches only folders of
// this user, and follows no links.
func Sweep(root string) ([]string, error) {
	parent, err := os.OpenRoot(root)
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	defer parent.Close()
	entries, err := fs.ReadDir(parent.FS(), ".")
	if err != nil {
		return nil, fmt.Errorf("sweep: %w", err)
	}
	var swept []string
	for _, entry := range entries {
		if !entry.IsDir() || !strings.HasPrefix(entry.Name(), prefix) {
			continue
		}
		removed, failed := sweep(parent, entry.Name())
		if failed != nil && !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("sweep: %w", failed))
		} else if removed {
			swept = append(swept, filepath.Join(root, entry.Name()))
		}
	}
	return swept, err
}

// own reports whether a process of this user made the folder: all users share /tmp.
func own(about fs.FileInfo) bool {
	stat, ok := about.Sys().(*syscall.Stat_t)
	return ok && about.IsDir() && int(stat.Uid) == os.Geteuid()
}

func sweep(parent *os.Root, name string) (removed bool, err error) {
	named, err := parent.Lstat(name)
	if err != nil || !own(named) {
		return false, err
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return false, err
	}
	defer root.Close()
	if opened, err := root.Stat("."); err != nil || !os.SameFile(opened, named) {
		return false, err // a link in its place
	}
	owner, err := root.OpenFile(ownerName, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return parent.Remove(name) == nil, nil // empty: its process was killed, or makes another one
	}
	if err != nil {
		return false, err
	}
	defer owner.Close()
	if unix.Flock(int(owner.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	return true, remove(parent, root, name)
}
