package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/temporary"
	"synclab/bench/outfile"
)

// Cache is a folder of built commands.
type Cache struct{ dir string }

// OpenCache opens a cache, and makes its folder if necessary. The default is synclab in the user's cache folder, or a
// folder in the temporary folder if the former is not writable.
func OpenCache(dir string) (Cache, error) {
	if dir != "" {
		return Cache{dir}, os.MkdirAll(dir, 0o755)
	}
	var first error
	if dir, err := userCache(); err != nil {
		first = err
	} else if first = writable(filepath.Join(dir, "synclab")); first == nil {
		return Cache{filepath.Join(dir, "synclab")}, nil
	}
	dir = filepath.Join(os.TempDir(), "synclab-cache-"+strconv.Itoa(os.Getuid()))
	if err := writable(dir); err != nil {
		return Cache{}, fmt.Errorf("no folder for built commands: %w", errors.Join(first, err))
	}
	return Cache{dir}, nil
}

// userCache returns the user's cache folder. Without HOME it is in the home of the user database, as in jobs of CI:
// another user can take a name in the temporary folder first.
func userCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err == nil {
		return dir, nil
	}
	account, unknown := user.LookupId(strconv.Itoa(os.Getuid()))
	if unknown != nil || !filepath.IsAbs(account.HomeDir) {
		return "", err
	}
	return filepath.Join(account.HomeDir, ".cache"), nil
}

// writable makes the folder, and returns an error unless this user owns it and can write there: its files will be
// executed.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	stat, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if owner := stat.Sys().(*syscall.Stat_t).Uid; !stat.IsDir() || int(owner) != os.Geteuid() {
		return fmt.Errorf("%s: not a folder of user %d", dir, os.Geteuid())
	}
	if err := outfile.Trusted(dir); err != nil {
		return err
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return MayRun(dir)
}

// MayRun returns an error if the folder's file system is mounted noexec.
func MayRun(dir string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return &fs.PathError{Op: "statfs", Path: dir, Err: err}
	}
	if stat.Flags&unix.ST_NOEXEC != 0 {
		return fmt.Errorf("%s: its file system is mounted noexec, but Synclab runs programs from there", dir)
	}
	return nil
}

// Shipped is the folder of files that an installation brings along, seen from the folder of the executable. It has the
// form of a cache, and is only read: an image has its kube-proxy and its kernel there.
const Shipped = "../lib/synclab"

// matches returns the intact files of an origin that match a pattern, in the cache and among the shipped ones.
func (c Cache) matches(pattern, origin string) ([]string, error) {
	folders := []Cache{c}
	if exe, err := os.Executable(); err == nil {
		// Below /tmp, another user may have made it first.
		if shipped := filepath.Join(filepath.Dir(exe), Shipped); outfile.Trusted(shipped) == nil {
			folders = append(folders, Cache{shipped})
		}
	}
	var all []string
	for _, folder := range folders {
		paths, err := filepath.Glob(folder.Path(pattern))
		if err != nil {
			return nil, err
		}
		all = append(all, slices.DeleteFunc(paths, func(path string) bool {
			return !folder.intact(filepath.Base(path), origin) || outfile.Trusted(path) != nil
		})...)
	}
	return all, nil
}

// Path returns the path of a file with that name, which may not exist.
func (c Cache) Path(name string) string { return filepath.Join(c.dir, name) }

// Get returns the path of a file. It builds the file if it is missing, was changed, or has another origin. build writes
// to the path that it gets; Get renames the file only if build succeeds. If another process is building the file, Get
// waits.
func (c Cache) Get(ctx context.Context, name, origin string, build func(path string) error) (string, error) {
	path := c.Path(name)
	if c.intact(name, origin) {
		return path, nil
	}
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	defer unlock()
	if c.intact(name, origin) { // another process built it meanwhile
		return path, nil
	}
	_, _ = temporary.Sweep(c.dir) // a failed sweep does not prevent a build
	private, err := temporary.New(c.dir)
	if err != nil {
		return "", err
	}
	defer private.Remove()
	building := filepath.Join(private.Path, name)
	if err := build(building); err != nil {
		return "", err
	}
	digest, err := Digest(building)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(made{Origin: origin, Digest: digest})
	if err != nil {
		return "", err
	}
	return path, errors.Join(outfile.Write(Origin(path), append(text, '\n'), 0o644), os.Rename(building, path))
}

// keep moves a built file into the cache, under a name that contains its digest: builds of several sources at a time are
// several files. It removes the oldest of more than mostKept files of this prefix.
func (c Cache) keep(building, prefix string) (string, error) {
	digest, err := Digest(building)
	if err != nil {
		return "", err
	}
	path := c.Path(prefix + strings.TrimPrefix(digest, "sha256:")[:16])
	if err := os.Rename(building, path); err != nil {
		return "", err
	}
	const mostKept = 8
	all, err := filepath.Glob(c.Path(prefix) + "*")
	if err != nil {
		return "", err
	}
	slices.SortFunc(all, func(a, b string) int { return written(b).Compare(written(a)) })
	for _, old := range all[min(mostKept, len(all)):] {
		_ = os.Remove(old) // it takes only space
	}
	return path, nil
}

// made describes how a cached file was built; it is stored next to the file.
type made struct {
	Origin string `json:"origin"`
	Digest string `json:"digest"` // of the file
}

// Origin returns the path of the file next to a cached one that describes how it was built.
func Origin(path string) string { return path + ".made.json" }

// intact reports whether a file exists, was made from origin, and is unchanged.
func (c Cache) intact(name, origin string) bool {
	text, err := outfile.Read(Origin(c.Path(name)))
	if err != nil {
		return false
	}
	var m made
	if json.Unmarshal(text, &m) != nil || m.Origin != origin {
		return false
	}
	digest, err := Digest(c.Path(name))
	return err == nil && digest == m.Digest
}

// Digest returns the digest of a file's content.
func Digest(path string) (string, error) {
	f, err := outfile.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	digest := sha256.New()
	if _, err := io.Copy(digest, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return fmt.Sprintf("sha256:%x", digest.Sum(nil)), nil
}

// lock takes a file's lock. The lock ends with the process, however the process ends.
func (c Cache) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(c.Path("."+name+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	locked := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				locked <- err
				return
			}
		}
	}()
	select {
	case err := <-locked:
		if err != nil {
			f.Close()
			return nil, &fs.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
		return func() { f.Close() }, nil
	case <-ctx.Done():
		go func() { // release the lock when it is acquired
			<-locked
			f.Close()
		}()
		return nil, fmt.Errorf("another process is building it: %w", context.Cause(ctx))
	}
}
