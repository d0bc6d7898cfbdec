package netns

import (
	"errors"
	"os"
	"path/filepath"

	"synclab/bench/temporary"
)

// lockName is the lock file of the iptables tools in a run's folder: the machine's tools use another one.
const lockName = "xtables.lock"

// newDir makes the temporary folder of a run, with its lock file.
func newDir() (*temporary.Dir, error) {
	d, err := temporary.New("")
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(d.Path, lockName), nil, 0o600); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return d, nil
}
