package netns

import (
	"errors"
	"os"
	"path/filepath"

	"synclab/bench/lab/temporary"
)

// The run's folder, in the temporary one, and in it the lock file of the iptables tools: the machine's tools use another one.
const (
	labName  = "lab"
	lockName = "xtables.lock"
)

// labDir is a temporary folder with the run's folder in it. A subject may write to the run's, and change its mode. The one
// above keeps other users out: they would run a program there that its owner made set-user-ID.
type labDir struct {
	*temporary.Dir
	lab, lock string // paths
}

func newDir() (*labDir, error) {
	d, err := temporary.New("")
	if err != nil {
		return nil, err
	}
	lab := filepath.Join(d.Path, labName)
	l := &labDir{d, lab, filepath.Join(lab, lockName)}
	if err := errors.Join(os.Mkdir(lab, 0o700), os.WriteFile(l.lock, nil, 0o600)); err != nil {
		return nil, errors.Join(err, d.Remove())
	}
	return l, nil
}
