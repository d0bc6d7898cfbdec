package host

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"synclab/proxier"
)

// syncLog has the syncs that were reported and are not recorded yet.
type syncLog struct {
	pipe       *os.File      // nil: the subject writes no log
	read       chan struct{} // closed when the log was read to its end
	recordable chan struct{} // for a subject without tools: a sync can be recorded
	mu         sync.Mutex
	syncs      []proxier.Sync
}

func (l *syncLog) add(s proxier.Sync) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncs = append(l.syncs, s)
}

func (l *syncLog) take() []proxier.Sync {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.syncs
	l.syncs = nil
	return all
}

// ended marks the end of a process's log. A killed process may leave an incomplete line, which the first line of the
// next process must not continue.
func (l *syncLog) ended() {
	if l.pipe != nil {
		_, _ = l.pipe.WriteString(endOfWriter)
	}
}

// close ends the log, so that another one can be opened in its place.
func (l *syncLog) close() {
	if l.pipe == nil {
		return
	}
	_ = os.Remove(l.pipe.Name())
	l.pipe.Close()
	<-l.read
	l.pipe = nil
	l.take()
}

// endOfWriter ends an incomplete line, and marks it by an empty line after it.
const endOfWriter = "\n\n"

// readSyncLog reads the syncs of consecutive processes, until r ends. It skips incomplete lines.
func readSyncLog(r io.Reader, take func(proxier.Sync)) error {
	lines := bufio.NewReaderSize(r, 1<<20)
	var bad error // error of the previous line
	for {
		line, err := lines.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return fmt.Errorf("sync log: a line of more than 1 MiB: %w", err)
		}
		if err != nil {
			return nil // the end of the repetition
		}
		if len(bytes.TrimSpace(line)) == 0 {
			bad = nil
			continue
		}
		if bad != nil {
			return bad
		}
		for s, err := range proxier.ReadSyncLog(bytes.NewReader(line)) {
			if bad = err; err == nil {
				take(s)
			}
		}
	}
}

func (r *Host) syncLogFile() string { return filepath.Join(r.Lab.Dir, "syncs.jsonl") }

// openSyncLog makes the named pipe through which the lab's own proxier reports its syncs, one process after the other.
// The log has what cannot be seen from outside. It is read until ctx ends.
func (r *Host) openSyncLog(ctx context.Context) error {
	path := r.syncLogFile()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	// Open for writing too, so that the end of a process is no end of the file.
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	read := make(chan struct{})
	r.Harness.log.pipe, r.Harness.log.read = pipe, read
	context.AfterFunc(ctx, func() { pipe.Close() })
	go func() {
		defer close(read)
		err := readSyncLog(pipe, func(s proxier.Sync) {
			if !errors.Is(s.Err, context.Canceled) { // not stopped
				r.Harness.log.add(s)
				r.reported(s)
				r.tellSync(s.Written, s.Finished)
			}
		})
		if err != nil && ctx.Err() == nil {
			r.Fail(err)
		}
	}()
	return nil
}

// tellSync reports when a sync has written its rules, for a subject without tools: tools report it themselves. A zero
// time means that the sync failed, and may have written a part until it finished.
func (r *Host) tellSync(written, finished time.Time) {
	if r.About.HasTools() || r.Harness == nil {
		return
	}
	if written.IsZero() {
		written = finished
	}
	r.Harness.Watcher.ToolEnded(written)
	select {
	case r.Harness.log.recordable <- struct{}{}:
	default:
	}
}
