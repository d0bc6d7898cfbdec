package outfile

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Folder is a folder that was opened once. Another user may rename it, or what is in it, at any time: no file outside of
// it is written or removed. Names of files to write are without slashes.
type Folder struct {
	Path string   // for messages
	Root *os.Root // for what needs no check of the file: relative paths, which lead nowhere outside
}

// OpenFolder opens a folder.
func OpenFolder(path string) (*Folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &Folder{path, root}, nil
}

// MakeFolder is OpenFolder, which makes the folder and its parents if necessary.
func MakeFolder(path string) (*Folder, error) {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	return OpenFolder(path)
}

// Close closes the descriptor.
func (f *Folder) Close() error { return f.Root.Close() }

// Sub opens a folder in the folder, and makes it if necessary.
func (f *Folder) Sub(name string) (*Folder, error) {
	if err := f.Root.Mkdir(name, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if stat, err := f.Root.Lstat(name); err != nil || !stat.IsDir() { // OpenRoot would wait for a FIFO's writer
		return nil, errors.Join(err, fmt.Errorf("%s: not a folder", filepath.Join(f.Path, name)))
	}
	root, err := f.Root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return &Folder{filepath.Join(f.Path, name), root}, nil
}

// List returns the entries of the folder, sorted by name.
func (f *Folder) List() ([]fs.DirEntry, error) {
	return fs.ReadDir(f.Root.FS(), ".")
}

// Remove removes a file, or an empty folder. One that is not there is no error.
func (f *Folder) Remove(name string) error {
	if err := f.Root.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// RemoveAll removes what is at a relative path: a file, or a folder with all that is in it.
func (f *Folder) RemoveAll(name string) error { return f.Root.RemoveAll(name) }

// Open opens a file for reading, by a relative path. It follows no link at its end, and opens regular files only.
func (f *Folder) Open(name string) (*os.File, error) { return f.open(name, os.O_RDONLY, 0) }

// Append is Append for a file of the folder.
func (f *Folder) Append(name string, mode fs.FileMode) (*os.File, error) {
	return f.open(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, mode)
}

// Read is Read for a file of the folder. It follows no link.
func (f *Folder) Read(name string) ([]byte, error) {
	file, err := f.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return readBounded(file, file.Name())
}

func (f *Folder) open(name string, flags int, mode fs.FileMode) (*os.File, error) {
	path := filepath.Join(f.Path, name)
	if stat, err := f.Root.Lstat(name); err == nil && !stat.Mode().IsRegular() { // os.Root follows links that stay in the folder
		return nil, &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	}
	file, err := f.Root.OpenFile(name, flags|unix.O_NONBLOCK, mode)
	return regular(file, err, path, flags)
}

// Write is Write for a file of the folder.
func (f *Folder) Write(name string, content []byte, mode fs.FileMode) error {
	return f.WriteWith(name, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteWith is WriteWith for a file of the folder.
func (f *Folder) WriteWith(name string, mode fs.FileMode, write func(io.Writer) error) error {
	f.Sweep()
	path := filepath.Join(f.Path, name)
	draft, draftName, err := f.draft()
	if err != nil {
		return Full(path, err)
	}
	buffer := bufio.NewWriterSize(draft, 64<<10)
	if err = errors.Join(write(buffer), buffer.Flush()); err == nil {
		_ = draft.Chmod(mode &^ umask) // some file systems have no modes
		err = f.Root.Rename(draftName, name)
	}
	if err != nil {
		err = errors.Join(err, f.Root.Remove(draftName))
	}
	return Full(path, errors.Join(err, draft.Close()))
}

// draftPrefix begins the name of a file that is being written.
const draftPrefix = "synclab-tmp-"

// umask is the process's umask. Drafts are private until they are complete, so that no other user can lock them.
var umask = func() fs.FileMode {
	mask := unix.Umask(0o077)
	unix.Umask(mask)
	return fs.FileMode(mask)
}()

// draft makes a file with a lock that the kernel releases when the process ends.
func (f *Folder) draft() (*os.File, string, error) {
	const tries = 100
	for range tries {
		name := draftPrefix + rand.Text()
		file, err := f.Root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, "", err
		}
		var stat unix.Stat_t
		err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && unix.Fstat(int(file.Fd()), &stat) == nil && stat.Nlink > 0 {
			return file, name, nil // without locks on this file system, Sweep gets none either
		}
		file.Close() // another process sweeps it
	}
	return nil, "", fmt.Errorf("%s: another process removes each new file", f.Path)
}

// Sweep removes the drafts of killed processes: regular files of this user that no process has locked. What cannot be
// removed stays.
func (f *Folder) Sweep() {
	entries, _ := f.List()
	for _, entry := range entries {
		name := entry.Name()
		if !entry.Type().IsRegular() || !strings.HasPrefix(name, draftPrefix) {
			continue
		}
		file, err := f.Root.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		var stat unix.Stat_t
		if unix.Fstat(int(file.Fd()), &stat) == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG && int(stat.Uid) == os.Geteuid() &&
			unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			_ = f.Root.Remove(name) // only a name in this folder goes
		}
		file.Close()
	}
}

// OwnFolder returns the folder for what is derived from a folder: the folder itself, or PREFIX-NAME in the current one
// if it belongs to another user. Only --out writes into the folders of other users.
func OwnFolder(folder, prefix string) (string, error) {
	own, err := isOwn(folder)
	if err != nil {
		return "", err
	}
	// A folder of root in a folder of another user may be exchanged before it is opened.
	if own && (os.Geteuid() != 0 || Trusted(folder) == nil) {
		return folder, nil
	}
	whole, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	out := Name(prefix + "-" + filepath.Base(whole))
	for _, path := range []string{".", out} {
		own, err := isOwn(path)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil || !own {
			return "", errors.Join(err, fmt.Errorf("%s and %s are of other users: name a folder with --out", folder, path))
		}
	}
	return out, nil
}

// isOwn reports whether a file belongs to this user.
func isOwn(path string) (bool, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return false, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return int(stat.Uid) == os.Geteuid(), nil
}

// longestName is the number of bytes of a name that Name leaves as it is. File systems take 255, with endings.
const longestName = 200

// Name returns a name for a file: the given one, or if it is too long for file systems, its begin and its digest.
func Name(name string) string {
	if len(name) <= longestName {
		return name
	}
	digest := sha256.Sum256([]byte(name))
	return fmt.Sprintf("%s-%x", strings.ToValidUTF8(name[:longestName-33], ""), digest[:16])
}
