package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Fail lets the next n calls that write rules (…-restore, nft -f) fail before they read anything: exit status 1.
func (s *Shim) Fail(n int) error { return s.plant("fail", n) }

// Kill lets the next n calls that write rules be killed (SIGKILL) as soon as the tool runs.
func (s *Shim) Kill(n int) error { return s.plant("kill", n) }

// Refuse lets each call that writes rules and is given one of the texts on its standard input fail as a whole, as the tool
// does when the kernel refuses what a line says, until lift is called or ClearFaults. The tool does not run, so nothing
// at all is applied, where a restore would have written the tables before the refused one. While any text is refused, a
// call reads all of its input before the tool starts.
func (s *Shim) Refuse(texts ...string) (lift func() error, err error) {
	if len(texts) == 0 || len(texts) > mostTexts || len(strings.Join(texts, "")) > mostTextBytes {
		return nil, fmt.Errorf("shim: refuse: %d texts: want 1 to %d, of %d bytes at most", len(texts), mostTexts, mostTextBytes)
	}
	var paths []string
	lift = func() error {
		var errs []error
		for _, path := range paths {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, fmt.Errorf("shim: %w", err))
			}
		}
		return errors.Join(errs...)
	}
	if err := os.MkdirAll(s.path(faultsFolder), 0o755); err != nil {
		return nil, fmt.Errorf("shim: %w", err)
	}
	for _, text := range texts {
		name := fmt.Sprintf("refuse-%d", s.planted.Add(1))
		// Under another name first: a call must not read half a text.
		half, path := s.path(faultsFolder, "half-"+name), s.path(faultsFolder, name)
		paths = append(paths, path)
		if err := errors.Join(os.WriteFile(half, []byte(text), 0o644), os.Rename(half, path)); err != nil {
			return nil, errors.Join(fmt.Errorf("shim: %w", err), lift())
		}
	}
	return lift, nil
}

// As many texts as the program has room for.
const mostTexts, mostTextBytes = 16, 4096

// plant puts one file a call into the folder; the program takes them by unlinking. The folder is there only while there
// may be some, so that other calls do not look into it.
func (s *Shim) plant(kind string, n int) error {
	if err := os.MkdirAll(s.path(faultsFolder), 0o755); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	for range n {
		path := s.path(faultsFolder, fmt.Sprintf("%s-%d", kind, s.planted.Add(1)))
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			return fmt.Errorf("shim: %w", err)
		}
	}
	return nil
}

// ClearFaults takes away what no call has taken, and says how many those were.
func (s *Shim) ClearFaults() (left int, err error) {
	entries, err := os.ReadDir(s.path(faultsFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("shim: %w", err)
	}
	for _, entry := range entries {
		err := os.Remove(s.path(faultsFolder, entry.Name()))
		if err == nil {
			left++
		} else if !errors.Is(err, fs.ErrNotExist) {
			return left, fmt.Errorf("shim: %w", err)
		}
	}
	if err := os.Remove(s.path(faultsFolder)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return left, fmt.Errorf("shim: %w", err)
	}
	return left, nil
}
