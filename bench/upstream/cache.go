package upstream

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Cache is a folder of commands that were built.
type Cache struct{ dir string }

// OpenCache makes the folder if need be. Empty: synclab in the user's cache folder, or in the temporary folder when that
// one cannot be written.
func OpenCache(dir string) (Cache, error) {
	if dir != "" {
		return Cache{dir}, os.MkdirAll(dir, 0o755)
	}
	var first error
	if dir, err := os.UserCacheDir(); err != nil {
		first = err
	} else if first = writable(filepath.Join(dir, "synclab")); first == nil {
		return Cache{filepath.Join(dir, "synclab")}, nil
	}
	dir = filepath.Join(os.TempDir(), "synclab-cache-"+strconv.Itoa(os.Getuid()))
	if err := writable(dir); err != nil {
		return Cache{}, fmt.Errorf("no folder for what is built: %w", errors.Join(first, err))
	}
	return Cache{dir}, nil
}

// writable makes the folder and says whether this user owns it and may write there: what lies in it will be run.
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
	if err := unix.Access(dir, unix.W_OK); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}

// Path is where a file of that name is or would be.
func (c Cache) Path(name string) string { return filepath.Join(c.dir, name) }

// Get gives the path of a file, and has it made if it is not there. build writes it to the path that it gets; only when
// it succeeds the file gets its name. Who asks for a file that another process is building waits for it.
func (c Cache) Get(ctx context.Context, name string, build func(path string) error) (string, error) {
	path := c.Path(name)
	if exists(path) {
		return path, nil
	}
	unlock, err := c.lock(ctx, name)
	if err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	defer unlock()
	if exists(path) { // another built it meanwhile
		return path, nil
	}
	building := c.Path("." + name + ".building") // what a killed build left is overwritten
	defer os.RemoveAll(building)
	if err := os.RemoveAll(building); err != nil {
		return "", err
	}
	if err := build(building); err != nil {
		return "", err
	}
	return path, os.Rename(building, path)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lock holds a file's lock; it ends with the process, whatever ends that.
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
		go func() { // whenever it comes
			<-locked
			f.Close()
		}()
		return nil, fmt.Errorf("another process is building it: %w", context.Cause(ctx))
	}
}
