package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Kept are the files and folders that a confined process still sees, beside the read-only system. Paths that do not exist
// are left out, and so are folders to read that hold a whole private folder, such as the home.
type Kept struct {
	Write, Read []string
}

// devices are what a confined process has in /dev: no disks, no memory of the machine, and no terminal, whose owner's shell
// reads what is put into it.
var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/net/tun"}

// privateFolders returns the folders that a confined process has for itself, empty at first: homes, temporary folders, and
// those with devices and with sockets of the machine's services. None of outer is in another.
func privateFolders() (all, outer []string) {
	for _, dir := range []string{"/dev", "/home", "/root", "/run", "/tmp", "/var/run", "/var/tmp", os.Getenv("HOME"), os.TempDir()} {
		real, err := filepath.EvalSymlinks(dir)
		first, _, _ := strings.Cut(strings.TrimPrefix(real, "/"), "/")
		if err != nil || !filepath.IsAbs(real) || slices.Contains([]string{"", "bin", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"}, first) {
			continue // missing, or a part of the system, as the homes of some users are
		}
		all = append(all, real)
	}
	slices.Sort(all)
	for _, dir := range all {
		if !slices.ContainsFunc(outer, func(of string) bool { return within(dir, of) }) {
			outer = append(outer, dir)
		}
	}
	return all, outer
}

// within reports whether a path is a folder or in it.
func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// tree is a copy of a mount that is not in the file system yet.
type tree struct {
	fd     int
	target string
	folder bool
}

// trees returns copies of the mounts of what is kept, sorted by path.
func (k Kept) trees(private []string) (all []tree, err error) {
	named := map[string]bool{} // true: to write
	for _, of := range []struct {
		paths []string
		write bool
	}{{k.Read, false}, {slices.Concat(devices, k.Write), true}} {
		for _, path := range of.paths {
			real, err := filepath.EvalSymlinks(path)
			if err == nil {
				named[filepath.Clean(path)], named[real] = of.write, of.write
			}
		}
	}
	for path, write := range named {
		stat, err := os.Stat(path)
		if err != nil || !write && (!slices.ContainsFunc(private, func(dir string) bool { return within(path, dir) }) ||
			stat.IsDir() && slices.ContainsFunc(private, func(dir string) bool { return within(dir, path) })) {
			continue // the system's, which is read-only anyway, or too much
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return all, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, tree{fd: fd, target: path, folder: stat.IsDir()})
		attributes := uint64(unix.MOUNT_ATTR_NOSUID)
		if !write {
			attributes = unix.MOUNT_ATTR_RDONLY // ping and sudo may be there, whose capabilities are bounded anyway
		}
		if err := unix.MountSetattr(fd, "", unix.AT_EMPTY_PATH|unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: attributes}); err != nil {
			return all, fmt.Errorf("%s: protect its mount: %w", path, err)
		}
	}
	slices.SortFunc(all, func(a, b tree) int { return strings.Compare(a.target, b.target) })
	return all, nil
}

// attach puts the copy at its place, which it makes if need be.
func (t tree) attach() error {
	_, err := os.Stat(t.target)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
	case t.folder:
		err = os.MkdirAll(t.target, 0o700)
	default:
		if err = os.MkdirAll(filepath.Dir(t.target), 0o755); err == nil {
			err = os.WriteFile(t.target, nil, 0o600)
		}
	}
	if err == nil {
		err = unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.target, unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", t.target, err)
	}
	return nil
}

// protectFiles makes all files read-only for the calling thread, in a new mount namespace, and puts empty folders in memory
// over the private ones, with what is kept. An error that is forbidden means that nothing was hidden.
func protectFiles(kept Kept) error {
	where, whereErr := os.Getwd()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); errors.Is(err, unix.EINVAL) {
		return errChroot
	} else if err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	private, outer := privateFolders()
	trees, err := kept.trees(private)
	defer func() {
		for _, t := range trees {
			unix.Close(t.fd)
		}
	}()
	if err != nil {
		return err
	}
	if err := readOnly(); err != nil {
		return err
	}
	for _, dir := range outer {
		// In a folder that all may write to, a shell cannot redirect to another user's file, not even to /dev/null.
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755"); err != nil {
			return fmt.Errorf("private %s: %v", dir, err) // never forbidden: what follows would be missing
		}
	}
	for _, t := range trees {
		if err := t.attach(); err != nil {
			return errors.New(err.Error()) // as above
		}
	}
	for name, to := range map[string]string{"fd": "fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		_ = os.Symlink("/proc/self/"+to, "/dev/"+name)
	}
	for _, dir := range []string{os.Getenv("HOME"), os.TempDir(), "/dev/shm", where} {
		_ = os.MkdirAll(dir, 0o700) // only in private folders
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/dev/shm"} {
		_ = os.Chmod(dir, 0o777|fs.ModeSticky)
	}
	// By path: the folder that this thread is in is below the private one.
	if whereErr != nil || unix.Chdir(where) != nil {
		return unix.Chdir("/")
	}
	return nil
}
