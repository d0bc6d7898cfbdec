// Package outfile writes and opens Synclab's files in folders where other users may have put links or FIFOs, or rename
// files at any time.
//
//  1. A Folder is opened once. All that follows is relative to its descriptor, and leaves it through no link.
//  2. Write creates a draft in the target's folder, and renames it. A link at the target path is replaced, never
//     followed. It writes to devices and descriptors in /dev and /proc instead of replacing them. It removes the drafts
//     of killed processes from the target's folder.
//  3. Open and Append accept regular files only. A FIFO or a device is an error at once. ReadInput, for a file that the
//     user names, also accepts a pipe of the shell.
//
// Not covered: the parents of the folder. A user with permission to rename them decides which folder is opened.
package outfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrNotRegular means a FIFO, a device, a folder, or a link that must not be followed. Other errors wrap it.
var ErrNotRegular = errors.New("not a regular file")

// Write replaces the file at path with content; readers see the old content or the new content. A new file gets mode,
// less the process's umask.
func Write(path string, content []byte, mode fs.FileMode) error {
	return WriteWith(path, mode, func(w io.Writer) error {
		_, err := w.Write(content)
		return err
	})
}

// WriteWith is Write for content that is made piece by piece. If write fails, the old file at path stays.
func WriteWith(path string, mode fs.FileMode, write func(io.Writer) error) error {
	if isDevice(path) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		buffer := bufio.NewWriterSize(f, 64<<10)
		return errors.Join(write(buffer), buffer.Flush(), f.Close())
	}
	folder, err := OpenFolder(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.WriteWith(filepath.Base(path), mode, write), folder.Close())
}

// Full adds a remedy to the error of a full disk. It returns other errors unchanged.
func Full(path string, err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: make room in %s, or write to a folder on another disk", err, filepath.Dir(path))
	}
	return err
}

// isDevice reports whether to write to the file instead of replacing it: /dev/stdout, /dev/null, /dev/fd/3 and the
// like. Files in /dev/shm are ordinary files.
func isDevice(path string) bool {
	path, err := filepath.Abs(path)
	switch {
	case err != nil:
		return false
	case path == "/dev/stdout", path == "/dev/stderr", strings.HasPrefix(path, "/dev/fd/"), strings.HasPrefix(path, "/proc/"):
		return true
	}
	stat, err := os.Lstat(path)
	return err == nil && strings.HasPrefix(path, "/dev/") && stat.Mode()&os.ModeDevice != 0
}

// Own reports whether files belong to this user, or to root. Links count as what they are.
func Own(paths ...string) (bool, error) {
	for _, path := range paths {
		var stat unix.Stat_t
		if err := unix.Lstat(path, &stat); err != nil {
			return false, &fs.PathError{Op: "stat", Path: path, Err: err}
		}
		if stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
			return false, nil
		}
	}
	return true, nil
}

// Append opens a file for appending, and creates it if necessary. It refuses a link, and a file with several hard
// links, which another user may have made.
func Append(path string, mode fs.FileMode) (*os.File, error) {
	return open(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, mode)
}

// Open opens a file for reading.
func Open(path string) (*os.File, error) { return open(path, os.O_RDONLY, 0) }

// OpenBeside opens a file of a folder in which another process, as a confined subject, may write too. It refuses a link,
// and does not wait for a FIFO's writer.
func OpenBeside(path string, flags int, mode fs.FileMode) (*os.File, error) {
	return open(path, flags|unix.O_NOFOLLOW, mode)
}

// readLimit is the size in bytes of the largest file that Read accepts.
const readLimit = 64 << 20

// Read reads a file of at most 64 MiB.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, path)
}

func readBounded(r io.Reader, path string) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, readLimit+1))
	if err == nil && len(text) > readLimit {
		err = fmt.Errorf("%s: larger than %d MiB", path, readLimit>>20)
	}
	return text, err
}

// ReadOpened reads an opened file from an offset to its end. It refuses more bytes than most, before it reads: a subject can
// make a file of any size that has no content.
func ReadOpened(f *os.File, from, most int64) ([]byte, error) {
	stat, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if stat.Size()-from > most {
		return nil, fmt.Errorf("%s: larger than %d MiB", f.Name(), most>>20)
	}
	return io.ReadAll(io.NewSectionReader(f, from, most))
}

// Unpack reads a file that is packed with gzip, of at most 64 MiB and so many bytes unpacked.
func Unpack(path string, most int64) ([]byte, error) {
	packed, err := Read(path)
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("larger than %d MiB when unpacked", most>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

func open(path string, flags int, mode fs.FileMode) (*os.File, error) {
	f, err := os.OpenFile(path, flags|unix.O_NONBLOCK, mode)
	return regular(f, err, path, flags)
}

// regular closes an opened file that is not regular, and one to append to that has several names.
func regular(f *os.File, err error, path string, flags int) (*os.File, error) {
	refused := &fs.PathError{Op: "open", Path: path, Err: ErrNotRegular}
	if errors.Is(err, unix.ELOOP) && flags&unix.O_NOFOLLOW != 0 || errors.Is(err, unix.ENXIO) {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &stat); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || flags&os.O_APPEND != 0 && stat.Nlink > 1 {
		f.Close()
		return nil, refused
	}
	return f, nil
}
