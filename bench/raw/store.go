package raw

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/outfile"
)

// The files of a run's folder that are written while it runs; bench.txt follows at its end.
const (
	RunFile     = "run.json"
	RecordsFile = "records.jsonl"
	benchFile   = "bench.txt"
	kernelFile  = "kernel.log" // messages of guests' kernels
	ReserveFile = ".reserve"   // keeps disk space free for the final run.json; locked while the run lasts
)

// reserved is the size of ReserveFile in bytes.
const reserved = 256 << 10

// The states of a run, as in Run.Status.
const (
	StatusRunning     = "running"
	StatusComplete    = "complete"
	StatusInterrupted = "interrupted"
	StatusFailed      = "failed"
	StatusChanged     = "changed" // its records are not those that the run wrote; only readers say so
)

const (
	flushAfter = time.Second // the longest time until a record is written
	flushAt    = 32 << 10    // bytes
)

// RunWriter writes a run's folder. It is safe for concurrent use.
type RunWriter struct {
	dir     string
	folder  *outfile.Folder
	records *os.File
	reserve *os.File // its lock distinguishes a running run from a killed one; other users cannot open the file

	mu     sync.Mutex
	run    Run
	buf    []byte // whole lines
	sum    digest // of the lines in the file
	timer  *time.Timer
	failed error // of a flush in the background
}

// OpenRun makes dir a run's folder and writes run.json. It refuses a directory with any content. With force, it replaces
// the run in dir. It never replaces a running run, or a folder that is no run.
func OpenRun(dir string, run Run, force bool) (*RunWriter, error) {
	w, err := openRun(dir, run, force)
	if err != nil {
		return nil, fmt.Errorf("run folder %s: %w", dir, err)
	}
	return w, nil
}

func openRun(dir string, run Run, force bool) (_ *RunWriter, err error) {
	folder, err := outfile.MakeFolder(dir)
	if err != nil {
		return nil, err
	}
	w := &RunWriter{dir: dir, folder: folder, run: run}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	entries, err := folder.List()
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		if !isRun(dir) {
			return nil, errors.New("it is not empty, and not a run: choose another folder")
		}
		if !force {
			return nil, errors.New("it already has a run: choose another folder, or replace the run with --force")
		}
	}
	if w.reserve, err = folder.Append(ReserveFile, 0o600); err != nil {
		return nil, err
	}
	if err := unix.Flock(int(w.reserve.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("the run in it is still running: %w", err)
	}
	if w.records, err = folder.Append(RecordsFile, 0o644); err != nil {
		return nil, err
	}
	w.run.Format, w.run.Records = Format, nil
	if w.run.Status == "" {
		w.run.Status = StatusRunning
	}
	_, err = w.reserve.Write(make([]byte, reserved))
	return w, errors.Join(outfile.Full(w.reserve.Name(), err), w.records.Truncate(0), removeOld(folder, entries), writeRun(folder, w.run))
}

// close closes what is open.
func (w *RunWriter) close() error {
	var errs []error
	for _, file := range []*os.File{w.records, w.reserve} {
		if file != nil {
			errs = append(errs, file.Close())
		}
	}
	return errors.Join(append(errs, w.folder.Close())...)
}

func isRun(dir string) bool {
	_, err := ReadRunFile(dir)
	return err == nil
}

// removeOld removes the files that were derived from a replaced run's records. Other files in the folder stay.
func removeOld(folder *outfile.Folder, entries []fs.DirEntry) error {
	var errs []error
	for _, entry := range entries {
		switch name := entry.Name(); {
		case name == ProfilesFolder:
			errs = append(errs, folder.RemoveAll(name))
		case !entry.Type().IsRegular():
		case name == benchFile, name == kernelFile, name == "model.json", name == "index.html", name == "summary.json", name == "summary.md",
			filepath.Ext(name) == ".svg", filepath.Ext(name) == ".png":
			errs = append(errs, folder.Remove(name))
		}
	}
	return errors.Join(errs...)
}

// writeRun replaces run.json in one step, so that a reader never sees half of it.
func writeRun(folder *outfile.Folder, run Run) error {
	b, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", RunFile, err)
	}
	return folder.Write(RunFile, append(b, '\n'), 0o644)
}

// Dir returns the run's folder.
func (w *RunWriter) Dir() string { return w.dir }

// Write appends records, one line each. They are written to the file within a second.
func (w *RunWriter) Write(records ...Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed != nil {
		return w.failed
	}
	for _, record := range records {
		line, err := json.Marshal(record)
		if err != nil {
			return fmt.Errorf("record %s of %s: %w", record.Metric, record.Scenario, err)
		}
		w.buf = append(append(w.buf, line...), '\n')
		if len(w.buf) >= flushAt {
			if err := w.flush(); err != nil {
				return err
			}
		}
	}
	if w.timer == nil && len(w.buf) > 0 {
		w.timer = time.AfterFunc(flushAfter, func() { _ = w.Flush() })
	}
	return nil
}

// Flush writes buffered records to the file now.
func (w *RunWriter) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

// flush writes whole lines with one system call. So only a crash of the machine leaves half a line.
func (w *RunWriter) flush() error {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
	if len(w.buf) == 0 || w.failed != nil {
		return w.failed
	}
	n, err := w.records.Write(w.buf)
	w.sum.add(w.buf[:n])
	w.failed = outfile.Full(w.records.Name(), err)
	w.buf = w.buf[:0]
	return w.failed
}

// KernelLog opens the file for messages of guests' kernels, and appends a title. The caller closes it.
func (w *RunWriter) KernelLog(title string) (io.WriteCloser, error) {
	f, err := w.folder.Append(kernelFile, 0o644)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(f, "# %s\n", title); err != nil {
		return nil, errors.Join(outfile.Full(f.Name(), err), f.Close())
	}
	return f, nil
}

// WriteProfile writes a file of ProfilesFolder. The name is without a folder.
func (w *RunWriter) WriteProfile(name string, content []byte) error {
	profiles, err := w.folder.Sub(ProfilesFolder)
	if err != nil {
		return err
	}
	return errors.Join(profiles.Write(filepath.Base(name), content, 0o644), profiles.Close())
}

// Update changes run.json, e.g. when versions become known.
func (w *RunWriter) Update(change func(*Run)) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.run)
	return writeRun(w.folder, w.run)
}

// Close ends the run: it writes the last records, bench.txt, and run.json with the final status and its reason. The
// reserve leaves space for run.json on a full disk.
func (w *RunWriter) Close(status, reason string) error {
	finished := time.Now().UTC()
	w.mu.Lock()
	w.run.Finished, w.run.Status, w.run.Reason = &finished, status, reason
	flushed := w.flush()
	w.run.Records = w.sum.written()
	run := w.run
	w.mu.Unlock()
	benched := writeBenchFile(w.folder, run)
	_ = w.reserve.Truncate(0)
	ended := writeRun(w.folder, run)
	_ = w.folder.Remove(ReserveFile)
	return errors.Join(flushed, benched, ended, w.close())
}

func writeBenchFile(folder *outfile.Folder, run Run) error {
	return folder.WriteWith(benchFile, 0o644, func(w io.Writer) error { return WriteBench(w, run, Records(folder.Path)) })
}

// ReadRun reads a run's folder: run.json and all records. Errors name file and line. The status is not that of run.json
// if the run was killed, or its records have changed since it ended.
func ReadRun(dir string) (Run, []Record, error) {
	run, err := ReadRunFile(dir)
	if err != nil {
		return run, nil, err
	}
	var all []Record
	var sum digest
	for record, err := range records(dir, &sum) {
		if err != nil {
			return run, all, err
		}
		all = append(all, record)
	}
	switch read := sum.written(); {
	case run.Status == StatusRunning && killed(dir):
		run.Status, run.Reason = StatusInterrupted, "no process holds its lock: the lab was killed, or works on another machine"
	case run.Records == nil || *run.Records == *read:
	case run.Records.Lines != read.Lines:
		run.Status, run.Reason = StatusChanged, fmt.Sprintf("%s has %d records, and the run wrote %d", RecordsFile, read.Lines, run.Records.Lines)
	default:
		run.Status, run.Reason = StatusChanged, RecordsFile+" has other records than the run wrote"
	}
	return run, all, nil
}

// killed reports whether no process holds the lock of a run. It is false if this user may not know.
func killed(dir string) bool {
	reserve, err := outfile.Open(filepath.Join(dir, ReserveFile))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer reserve.Close()
	return unix.Flock(int(reserve.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
}

// digest is that of the lines of records.
type digest struct {
	lines int
	hash  hash.Hash
}

func (d *digest) add(lines []byte) {
	if d.hash == nil {
		d.hash = sha256.New()
	}
	d.lines += bytes.Count(lines, []byte("\n"))
	d.hash.Write(lines)
}

func (d *digest) written() *Contents {
	d.add(nil)
	return &Contents{Lines: d.lines, SHA256: hex.EncodeToString(d.hash.Sum(nil))}
}

// ReadRunFile reads run.json of a run's folder. Errors name file and line.
func ReadRunFile(dir string) (Run, error) {
	var run Run
	path := filepath.Join(dir, RunFile)
	b, err := outfile.Read(path)
	if err != nil {
		return run, fmt.Errorf("not a run: %w", err)
	}
	if err := json.Unmarshal(b, &run); err != nil {
		line := 0
		var syntax *json.SyntaxError
		var kind *json.UnmarshalTypeError
		switch {
		case errors.As(err, &kind) && kind.Field == "shard.units":
			return run, fmt.Errorf("%s: a shard of an earlier synclab, which counted shards from 1: read it with %s, or measure it again in another folder",
				path, cmp.Or(run.Versions.Synclab, "that one"))
		case errors.As(err, &syntax):
			line = 1 + bytes.Count(b[:syntax.Offset], []byte("\n"))
		case errors.As(err, &kind):
			line = 1 + bytes.Count(b[:kind.Offset], []byte("\n"))
		}
		return run, fmt.Errorf("%s:%d: %w", path, line, err)
	}
	if run.Format > Format {
		return run, fmt.Errorf("%s: it has format %d, and this synclab reads formats up to %d: read it with the one that wrote it, %s",
			path, run.Format, Format, cmp.Or(run.Versions.Synclab, "a newer one"))
	}
	return run, nil
}

// recordLimit is the largest length of a record in bytes.
const recordLimit = 4 << 20

// Records reads a run's records in order. It skips an incomplete last line, which a crash of the machine leaves. Any
// other line that is not a record ends the sequence with an error that names it.
func Records(dir string) iter.Seq2[Record, error] { return records(dir, &digest{}) }

// records is Records, and adds the lines to sum.
func records(dir string, sum *digest) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		path := filepath.Join(dir, RecordsFile)
		f, err := outfile.Open(path)
		if err != nil {
			yield(Record{}, err)
			return
		}
		defer f.Close()
		lines := bufio.NewReaderSize(f, recordLimit)
		for n := 1; ; n++ {
			line, err := lines.ReadSlice('\n')
			if errors.Is(err, bufio.ErrBufferFull) {
				err = fmt.Errorf("a line of more than %d MiB", recordLimit>>20)
			}
			torn := errors.Is(err, io.EOF)
			if err != nil && !torn {
				yield(Record{}, fmt.Errorf("%s:%d: %w", path, n, err))
				return
			}
			sum.add(line)
			if len(bytes.TrimSpace(line)) > 0 {
				var record Record
				err := json.Unmarshal(line, &record)
				if err != nil && torn {
					return
				}
				if err == nil {
					err = record.check()
				}
				if err != nil {
					yield(Record{}, fmt.Errorf("%s:%d: %w", path, n, err))
					return
				}
				if !yield(record, nil) {
					return
				}
			}
			if torn {
				return
			}
		}
	}
}

// SweepRuns marks the killed runs under root as interrupted, and returns their folders. Their records stay. It removes
// drafts that killed processes left in runs. It reads only runs of this user, in folders that no other user
// may write to. It ignores everything else.
func SweepRuns(root string) ([]string, error) {
	if !private(root) {
		return nil, nil
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	var swept []string
	for _, entry := range entries {
		dir := filepath.Join(root, entry.Name())
		if !private(dir) {
			continue
		}
		interrupted, err := sweepRun(dir)
		if err != nil {
			return swept, fmt.Errorf("sweep run %s: %w", dir, err)
		}
		if interrupted {
			swept = append(swept, dir)
		}
	}
	return swept, nil
}

// private reports whether a path is a folder of this user, and no link, that no other user may write to.
func private(path string) bool {
	stat, err := os.Lstat(path)
	if err != nil || !stat.IsDir() || stat.Mode().Perm()&0o022 != 0 {
		return false
	}
	return int(stat.Sys().(*syscall.Stat_t).Uid) == os.Geteuid()
}

func sweepRun(dir string) (interrupted bool, err error) {
	folder, err := outfile.OpenFolder(dir)
	if err != nil {
		return false, nil // not a run
	}
	defer folder.Close()
	folder.Sweep()
	run, err := ReadRunFile(dir)
	if err != nil || run.Status != StatusRunning {
		return false, nil // not a killed run
	}
	records, err := outfile.Open(filepath.Join(dir, RecordsFile))
	if err != nil {
		return false, nil // not a run
	}
	records.Close()
	reserve, err := folder.Append(ReserveFile, 0o600) // a copied run may have none
	if err != nil {
		return false, nil // not a run
	}
	defer reserve.Close()
	if unix.Flock(int(reserve.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil // still running
	}
	run.Status, run.Reason = StatusInterrupted, "the lab was killed"
	_ = reserve.Truncate(0)
	ended := errors.Join(writeBenchFile(folder, run), writeRun(folder, run))
	_ = folder.Remove(ReserveFile)
	return true, ended
}
