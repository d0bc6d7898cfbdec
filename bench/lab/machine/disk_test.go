package machine

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/shim"
	"synclab/bench/raw"
)

// disk is a folder with a separate file system, in this process's mount namespace.
func disk(t *testing.T, flags uintptr, options string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", flags, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// A run on a full disk fails, names the full folder, and run.json has the failure.
func TestFullDisk(t *testing.T) {
	disk := disk(t, 0, "size=1m")
	dir := filepath.Join(disk, "run")
	w, err := raw.OpenRun(dir, raw.Run{ID: "run", Started: time.Now()}, false)
	if err != nil {
		t.Fatal(err)
	}
	record := raw.Record{Scenario: "steady-churn", Subject: "synclab/nftables", Metric: raw.FullSync, Unit: "s", Value: 1}
	for written := 0; err == nil; written++ {
		if written > 100_000 {
			t.Fatal("a disk of 1 MiB does not become full")
		}
		err = w.Write(record)
	}
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "make room in "+dir) {
		t.Errorf("the error of a full disk: %v", err)
	}
	if closed := w.Close(raw.StatusFailed, err.Error()); !errors.Is(closed, unix.ENOSPC) {
		t.Errorf("the records were not all written, and the run closes with %v", closed)
	}
	run, records, err := raw.ReadRun(dir)
	if err != nil || run.Status != raw.StatusFailed || !strings.Contains(run.Reason, "make room in") || run.Finished == nil || len(records) == 0 {
		t.Errorf("run.json says %q, %q, %v; %d records, %v", run.Status, run.Reason, run.Finished, len(records), err)
	}
	if _, err := os.Stat(filepath.Join(dir, raw.ReserveFile)); err == nil {
		t.Error("the reserve is still there")
	}
	if c := examineOutput(disk); c.Status != Warn || !strings.Contains(c.Detail, disk) || c.Remedy == "" {
		t.Errorf("the doctor says %+v", c)
	}
	if _, err := raw.OpenRun(filepath.Join(disk, "another"), raw.Run{ID: "another"}, false); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "make room in") {
		t.Errorf("one more run on the full disk: %v", err)
	}
}

// Where programs cannot be executed, the shim and the doctor name the folder and the remedy.
func TestNoExec(t *testing.T) {
	disk := disk(t, unix.MS_NOEXEC, "size=16m")
	_, err := shim.Install(t.Context(), shim.Options{Dir: filepath.Join(disk, "shim"), Command: "/bin/true"})
	if err == nil || !strings.Contains(err.Error(), disk) || !strings.Contains(err.Error(), "let TMPDIR name another folder") {
		t.Errorf("the shim: %v", err)
	}
	if c := examineTemporary(disk); c.Status != Fail || !strings.Contains(c.Detail, "noexec") || !strings.Contains(c.Remedy, "TMPDIR") {
		t.Errorf("the doctor says %+v", c)
	}
	t.Setenv("XDG_CACHE_HOME", disk)
	if c := examineCache(); c.Status != Warn || strings.Contains(c.Detail, disk) {
		t.Errorf("the doctor says of the cache %+v", c)
	}
	if c := examineTemporary(t.TempDir()); c.Status == Fail {
		t.Errorf("another folder: %+v", c)
	}
}
