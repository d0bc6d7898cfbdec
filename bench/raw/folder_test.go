package raw

import (
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

// Runs that start at the same time get different folders, and none fails.
func TestNewFolderConcurrently(t *testing.T) {
	t.Chdir(t.TempDir())
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	const runs = 10
	folders, begin := make([]string, runs), make(chan struct{})
	var all sync.WaitGroup
	for i := range folders {
		all.Go(func() {
			<-begin
			folder, err := NewFolder("cold-start", at)
			if err != nil {
				t.Error(err)
				return
			}
			w, err := OpenRun(folder, testRun(), false)
			if err != nil {
				t.Error(err)
				return
			}
			if err := w.Close(StatusComplete, ""); err != nil {
				t.Error(err)
			}
			folders[i] = folder
		})
	}
	close(begin)
	all.Wait()
	slices.Sort(folders)
	if first := filepath.Join(RunsFolder, "cold-start-20260304-050607"); folders[0] != first {
		t.Errorf("first folder %s, want %s", folders[0], first)
	}
	if different := slices.Compact(folders); len(different) != runs {
		t.Errorf("%d different folders, want %d: %v", len(different), runs, different)
	}
}
