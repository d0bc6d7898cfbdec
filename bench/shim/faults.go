package shim

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Fail lets the next n calls that write rules (…-restore, nft -f) fail before they read anything: exit status 1.
func (s *Shim) Fail(n int) error { return s.plant("fail", n) }

// Kill lets the next n calls that write rules be killed (SIGKILL) as soon as the tool runs.
func (s *Shim) Kill(n int) error { return s.plant("kill", n) }

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
