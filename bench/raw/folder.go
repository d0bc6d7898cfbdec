package raw

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"synclab/bench/outfile"
)

// RunsFolder is the default folder of runs, below the current one.
const RunsFolder = "runs"

// NewFolder makes an empty folder in RunsFolder: KIND-DATE-TIME, or KIND-DATE-TIME-2 and so on. Only mkdir decides
// whether a name is free, because several processes may start within a second.
func NewFolder(kind string, at time.Time) (string, error) {
	if err := os.MkdirAll(RunsFolder, 0o755); err != nil {
		return "", fmt.Errorf("folder of runs: %w", err)
	}
	name := filepath.Join(RunsFolder, outfile.Name(kind)+"-"+at.Format("20060102-150405"))
	folder := name
	for n := 2; ; n++ {
		err := os.Mkdir(folder, 0o755)
		if err == nil {
			return folder, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("new folder: %w", err)
		}
		folder = fmt.Sprintf("%s-%d", name, n)
	}
}
