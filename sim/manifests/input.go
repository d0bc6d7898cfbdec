package manifests

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"golang.org/x/sys/unix"
)

// Limits of the input, all files together. Variables, for tests.
var (
	// largestInput is the number of bytes that are read, unpacked: 200,000 Services of 10 endpoints, as JSON.
	largestInput int64 = 1 << 30
	// largestUnpacked is the number of bytes of an archive, with the files that are not read.
	largestUnpacked int64 = 64 << 30
	// mostFiles is the number of files that are read: a must-gather folder of 1,000 namespaces has some 30,000.
	mostFiles = 200_000
)

// deepestFolder is the number of folders above a file. Support bundles have some 6.
const deepestFolder = 32

// inputFile is a file, with its text unpacked.
type inputFile struct {
	name string
	text []byte
	// found: its folder or archive was named, not the file itself. Such a file need not hold Kubernetes objects.
	found bool
}

// inputs reads the named files, folders and archives.
type inputs struct {
	files []inputFile
	left  int64 // bytes that may still be read
	// openNamed opens a file that was named, and not found in a folder.
	openNamed func(path string) (*os.File, error)
	// leaveOut is called with the files of folders that cannot be read; nil: they are refused.
	leaveOut func(file, reason string)
}

var url = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)

// RefuseURL refuses the name of a file that is a URL.
func RefuseURL(path string) error {
	if url.MatchString(path) {
		return fmt.Errorf("%s is a URL: download it first, for example with curl -LO", path)
	}
	return nil
}

// openInputs reads the named files, and folders in lexical order.
func openInputs(paths []string, stdin io.Reader, open func(path string) (*os.File, error), leaveOut func(file, reason string)) ([]inputFile, error) {
	if len(paths) == 0 {
		return nil, errors.New("no file, directory or - (stdin) to read objects from")
	}
	in := &inputs{left: largestInput, openNamed: open, leaveOut: leaveOut}
	if open == nil {
		in.openNamed = os.Open
	}
	for i, path := range paths {
		if err := in.open(path, stdin, slices.Index(paths, "-") < i); err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
	}
	return in.files, nil
}

func (in *inputs) open(path string, stdin io.Reader, again bool) error {
	switch {
	case path == "-" && (stdin == nil || again):
		return errors.New("stdin (-) can be read only once, and must be available")
	case path == "-":
		return in.read(stdin, "stdin", 0, false)
	}
	if err := RefuseURL(path); err != nil {
		return err
	}
	stat, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !stat.IsDir() {
		return in.readFile(path, false)
	}
	return in.readFolder(path)
}

// isManifest reports whether a file of a folder or an archive is read: *.yaml, *.yml and *.json, packed or not.
func isManifest(name string) bool {
	switch path.Ext(strings.TrimSuffix(name, ".gz")) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

func (in *inputs) readFolder(folder string) error {
	before := len(in.files)
	// With the slash, a link to a folder is followed.
	err := filepath.WalkDir(folder+"/", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil && entry != nil && path != folder+"/" && in.leaveOut != nil: // a folder in it
			in.leaveOut(path, reasonOf(err))
			return nil
		case err != nil || entry.IsDir() || !isManifest(path):
			return err
		}
		below, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		if err := checkDepth(path, below); err != nil {
			return err
		}
		return in.readFile(path, true)
	})
	if err == nil && len(in.files) == before {
		err = fmt.Errorf("%s: holds no *.yaml, *.yml or *.json that can be read", folder)
	}
	return err
}

// reasonOf returns an error without the file's name and the failed call.
func reasonOf(err error) string {
	var failed *fs.PathError
	if errors.As(err, &failed) {
		err = failed.Err
	}
	return err.Error()
}

func checkDepth(name, below string) error {
	if strings.Count(below, "/") > deepestFolder {
		return fmt.Errorf("%s: is more than %d folders deep", name, deepestFolder)
	}
	return nil
}

// readFile reads a file. A file of a folder that cannot be read is left out.
func (in *inputs) readFile(name string, found bool) error {
	f, size, err := in.openFile(name, found)
	switch {
	case err != nil && found && in.leaveOut != nil:
		in.leaveOut(name, reasonOf(err))
		return nil
	case err != nil:
		return err
	}
	defer f.Close()
	return in.read(f, name, size, found)
}

// openFile opens a file, and returns its size; 0: unknown. A file of a folder must be regular: it is opened without
// waiting for a writer.
func (in *inputs) openFile(name string, found bool) (*os.File, int64, error) {
	open := in.openNamed
	if found {
		open = func(name string) (*os.File, error) { return os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) }
	}
	f, err := open(name)
	if err != nil {
		return nil, 0, err
	}
	stat, err := f.Stat()
	switch {
	case err != nil:
	case stat.Mode().IsRegular():
		return f, stat.Size(), nil
	case found:
		err = &fs.PathError{Op: "read", Path: name, Err: errors.New("not a regular file")}
	default:
		return f, 0, nil
	}
	return nil, 0, errors.Join(err, f.Close())
}

// read unpacks a file of a size, 0 if it is unknown, and adds its text. An archive is a folder of files. A file of a folder
// that cannot be unpacked is left out.
func (in *inputs) read(r io.Reader, name string, size int64, found bool) error {
	buffered := bufio.NewReaderSize(r, 4096)
	magic, _ := buffered.Peek(2)
	packed := bytes.Equal(magic, []byte{0x1f, 0x8b})
	damaged := func(err error) error {
		if !packed || !found || in.leaveOut == nil || errors.Is(err, errTooLarge) {
			return fmt.Errorf("%s: %w", name, err)
		}
		in.leaveOut(name, err.Error())
		return nil
	}
	if packed {
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return damaged(err)
		}
		buffered, size = bufio.NewReaderSize(&bounded{unpacked, largestUnpacked}, 4096), 0
	}
	if header, _ := buffered.Peek(262); len(header) == 262 && string(header[257:]) == "ustar" && !found {
		return in.readArchive(tar.NewReader(buffered), name)
	}
	text, err := in.readText(buffered, size)
	if err != nil {
		return damaged(err)
	}
	if len(in.files) == mostFiles {
		return fmt.Errorf("%s: more than %d files: name the folders that hold Services, EndpointSlices and Nodes", name, mostFiles)
	}
	in.files = append(in.files, inputFile{name, text, found})
	return nil
}

// bounded fails at a number of bytes. io.LimitReader would end there, as a truncated file does.
type bounded struct {
	io.Reader
	left int64
}

func (b *bounded) Read(p []byte) (n int, err error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("%w than %d MiB when unpacked: unpack it, and name the folders that hold Services, EndpointSlices and Nodes", errTooLarge, largestUnpacked>>20)
	}
	n, err = b.Reader.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (in *inputs) readArchive(archive *tar.Reader, name string) error {
	before := len(in.files)
	for {
		entry, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if entry.Typeflag != tar.TypeReg || !isManifest(entry.Name) {
			continue
		}
		inside := name + ":" + path.Clean(entry.Name)
		if err := checkDepth(inside, entry.Name); err != nil {
			return err
		}
		if err := in.read(archive, inside, entry.Size, true); err != nil {
			return err
		}
	}
	if len(in.files) == before {
		return fmt.Errorf("%s: holds no *.yaml, *.yml or *.json", name)
	}
	return nil
}

// readText reads a text and subtracts its size from the bytes that may still be read.
func (in *inputs) readText(r io.Reader, size int64) ([]byte, error) {
	if size > in.left {
		return nil, tooLarge()
	}
	var text bytes.Buffer
	text.Grow(int(size) + bytes.MinRead)
	if _, err := text.ReadFrom(io.LimitReader(r, in.left+1)); err != nil {
		return nil, err
	}
	if in.left -= int64(text.Len()); in.left < 0 {
		return nil, tooLarge()
	}
	return decodeText(text.Bytes()), nil
}

// errTooLarge begins the message about an input beyond a limit.
var errTooLarge = errors.New("more")

func tooLarge() error {
	return fmt.Errorf("%w than %d MiB of input: leave out what is neither Service, EndpointSlice nor Node", errTooLarge, largestInput>>20)
}

// decodeText returns a text as UTF-8 without its byte order mark. A redirection in PowerShell writes UTF-16.
func decodeText(text []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return bytes.TrimPrefix(text, []byte("\ufeff"))
	}
	units := make([]uint16, 0, len(text)/2)
	for i := 2; i+1 < len(text); i += 2 {
		units = append(units, order.Uint16(text[i:]))
	}
	return []byte(string(utf16.Decode(units)))
}
