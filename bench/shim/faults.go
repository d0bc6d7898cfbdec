package shim

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
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
			if err := s.folder.Remove(path); err != nil {
				errs = append(errs, fmt.Errorf("shim: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	faults, err := s.folder.Sub(faultsFolder)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	defer faults.Close()
	for _, text := range texts {
		name := fmt.Sprintf("refuse-%d", s.planted.Add(1))
		paths = append(paths, filepath.Join(faultsFolder, name))
		if err := faults.Write(name, []byte(text), 0o644); err != nil { // at once: a call must not read an incomplete text
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
	faults, err := s.folder.Sub(faultsFolder)
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	defer faults.Close()
	for range n {
		if err := faults.Write(fmt.Sprintf("%s-%d", kind, s.planted.Add(1)), nil, 0o644); err != nil {
			return fmt.Errorf("shim: %w", err)
		}
	}
	return nil
}

// KeepInputs makes each call that writes rules keep its standard input, if that is a pipe. It then reads all of it before
// the tool starts.
func (s *Shim) KeepInputs() error {
	inputs, err := s.folder.Sub(inputsFolder)
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return inputs.Close()
}

// Input returns the kept standard input of a call.
func (s *Shim) Input(c Call) ([]byte, error) {
	f, err := s.folder.Open(filepath.Join(inputsFolder, strconv.Itoa(c.PID)))
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	return text, nil
}

// ClearFaults removes the faults that no call has consumed, and returns their number.
func (s *Shim) ClearFaults() (left int, err error) {
	switch has, err := s.folder.Has(faultsFolder); {
	case err != nil:
		return 0, fmt.Errorf("shim: %w", err)
	case !has:
		return 0, nil
	}
	faults, err := s.folder.Sub(faultsFolder)
	if err != nil {
		return 0, fmt.Errorf("shim: %w", err)
	}
	defer faults.Close()
	entries, err := faults.List()
	if err != nil {
		return 0, fmt.Errorf("shim: %w", err)
	}
	for _, entry := range entries {
		taken, err := faults.Take(entry.Name())
		if err != nil {
			return left, fmt.Errorf("shim: %w", err)
		}
		if taken {
			left++
		}
	}
	if err := s.folder.Remove(faultsFolder); err != nil {
		return left, fmt.Errorf("shim: %w", err)
	}
	return left, nil
}
