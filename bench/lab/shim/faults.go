package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"synclab/bench/outfile"
)

// Fail makes the next n calls that write rules (…-restore, nft -f) fail with exit status 1 before they read anything.
func (s *Shim) Fail(n int) error { return s.plant("fail", n) }

// Kill makes the next n calls that write rules end by SIGKILL as soon as the tool runs.
func (s *Shim) Kill(n int) error { return s.plant("kill", n) }

// Refuse makes each call that writes rules fail if its standard input contains one of the texts, until lift or
// ClearFaults is called. It fails as when the kernel rejects a line. The tool does not run, so nothing is applied; a
// real restore would have written the tables before the rejected one. Meanwhile, each call reads all input before the
// tool starts.
func (s *Shim) Refuse(texts ...string) (lift func() error, err error) {
	if len(texts) == 0 || len(texts) > mostTexts || len(strings.Join(texts, "")) > mostTextBytes {
		return nil, fmt.Errorf("shim: refuse: %d texts: want 1 to %d, of %d bytes at most", len(texts), mostTexts, mostTextBytes)
	}
	var paths []string
	lift = func() error {
		var errs []error
		for _, path := range paths {
			if err := s.folder.Root.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("shim: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	if err := s.folder.Root.MkdirAll(faultsFolder, 0o755); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	for _, text := range texts {
		name := fmt.Sprintf("refuse-%d", s.planted.Add(1))
		// Written under another name first: a call must not read an incomplete text.
		half, path := filepath.Join(faultsFolder, "half-"+name), filepath.Join(faultsFolder, name)
		paths = append(paths, path)
		if err := errors.Join(s.folder.Root.WriteFile(half, []byte(text), 0o644), s.folder.Root.Rename(half, path)); err != nil {
			return nil, errors.Join(fmt.Errorf("shim: %w", err), lift())
		}
	}
	return lift, nil
}

// The limits of the program's buffers.
const mostTexts, mostTextBytes = 16, 4096

// plant writes one file for each call; the program consumes a file by unlinking it. The folder exists only while there
// may be faults, so that other calls need not read it.
func (s *Shim) plant(kind string, n int) error {
	if err := s.folder.Root.MkdirAll(faultsFolder, 0o755); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	for range n {
		path := filepath.Join(faultsFolder, fmt.Sprintf("%s-%d", kind, s.planted.Add(1)))
		if err := s.folder.Root.WriteFile(path, nil, 0o644); err != nil {
			return fmt.Errorf("shim: %w", err)
		}
	}
	return nil
}

// KeepInputs makes each call that writes rules keep its standard input, if that is a pipe. It then reads all of it before
// the tool starts.
func (s *Shim) KeepInputs() error {
	if err := s.folder.Root.MkdirAll(inputsFolder, 0o755); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return nil
}

// Input returns the kept standard input of a call.
func (s *Shim) Input(c Call) ([]byte, error) {
	f, err := s.folder.Open(filepath.Join(inputsFolder, strconv.Itoa(c.PID)))
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	defer f.Close()
	text, err := outfile.ReadOpened(f, 0, mostOfInput)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	return text, nil
}

// ClearFaults removes the faults that no call has consumed, and returns their number.
func (s *Shim) ClearFaults() (left int, err error) {
	entries, err := fs.ReadDir(s.folder.Root.FS(), faultsFolder)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("shim: %w", err)
	}
	for _, entry := range entries {
		err := s.folder.Root.Remove(filepath.Join(faultsFolder, entry.Name()))
		if err == nil {
			left++
		} else if !errors.Is(err, fs.ErrNotExist) {
			return left, fmt.Errorf("shim: %w", err)
		}
	}
	if err := s.folder.Root.Remove(faultsFolder); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return left, fmt.Errorf("shim: %w", err)
	}
	return left, nil
}
