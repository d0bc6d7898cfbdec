package root

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

// Root is a folder with another system. Make it with Open.
type Root struct{ dir string }

// Open checks the folder. The loader's list of folders cannot contain a colon or a semicolon, so its path must not.
func Open(dir string) (*Root, error) {
	path, err := filepath.Abs(dir)
	if err == nil {
		path, err = filepath.EvalSymlinks(path)
	}
	if err != nil {
		return nil, err
	}
	if stat, err := os.Stat(path); err != nil || !stat.IsDir() {
		return nil, fmt.Errorf("%s is not a folder (%v)", dir, err)
	}
	if strings.ContainsAny(path, ":;") {
		return nil, fmt.Errorf("%s: a path with a colon or a semicolon cannot be in a list of libraries: rename the folder", path)
	}
	return &Root{path}, nil
}

// Dir returns the folder's path, without links.
func (r *Root) Dir() string { return r.dir }

// mostLinks is the number of links in one path after which it counts as a loop, as in the kernel.
const mostLinks = 40

// merged are the folders that are links to those of usr. Another package has these links than those whose paths need them.
var merged = []string{"bin", "sbin", "lib", "lib64"}

// Resolve returns where a path of the other system is on this machine, without links. It is always below the folder. An
// error wraps fs.ErrNotExist if there is no such file.
func (r *Root) Resolve(path string) (string, error) {
	at, rest, links := r.dir, strings.Split(path, "/"), 0
	for len(rest) > 0 {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if at != r.dir {
				at = filepath.Dir(at)
			}
			continue
		}
		next := filepath.Join(at, name)
		stat, err := os.Lstat(next)
		if errors.Is(err, fs.ErrNotExist) && at == r.dir && slices.Contains(merged, name) {
			at = filepath.Join(at, "usr", name)
			continue
		}
		if err != nil {
			return "", err
		}
		if stat.Mode()&os.ModeSymlink == 0 {
			at = next
			continue
		}
		if links++; links > mostLinks {
			return "", fmt.Errorf("%s below %s: %w", path, r.dir, unix.ELOOP)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(to, "/") {
			at = r.dir
		}
		rest = append(strings.Split(to, "/"), rest...)
	}
	_, err := os.Lstat(at)
	return at, err
}
