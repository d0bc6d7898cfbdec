package outfile

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// OpenInput opens a file that the user named: a regular file, or a pipe or terminal that is already open, as
// `-f <(command)` of a shell names it. It does not wait for the writer of a FIFO. Reads end with the context.
func OpenInput(ctx context.Context, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	stat, err := f.Stat()
	if err == nil && !stat.Mode().IsRegular() && (stat.IsDir() || !isDescriptor(path)) {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("%w: name a file, or - for standard input where it is accepted", ErrNotRegular)}
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) }) // of regular files it fails: they do not wait
	return f, nil
}

// isDescriptor reports whether a path names an open file: /dev/stdin, /dev/fd/63 or /proc/self/fd/63.
func isDescriptor(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && (path == "/dev/stdin" || strings.HasPrefix(path, "/dev/fd/") || strings.HasPrefix(path, "/proc/self/fd/"))
}

// ReadInput reads a file of OpenInput, of at most 64 MiB.
func ReadInput(ctx context.Context, path string) ([]byte, error) {
	f, err := OpenInput(ctx, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, path)
}

// Interruptible returns a reader of r, which may wait without end, as stdin. Its reads end with the context.
func Interruptible(ctx context.Context, r io.Reader) io.Reader {
	in := &interruptible{r: r}
	in.reader, in.writer = io.Pipe()
	context.AfterFunc(ctx, func() { in.writer.CloseWithError(ctx.Err()) })
	return in
}

type interruptible struct {
	r      io.Reader
	start  sync.Once
	reader *io.PipeReader
	writer *io.PipeWriter
}

func (in *interruptible) Read(p []byte) (int, error) {
	in.start.Do(func() {
		go func() {
			_, err := io.Copy(in.writer, in.r)
			in.writer.CloseWithError(err)
		}()
	})
	return in.reader.Read(p)
}
