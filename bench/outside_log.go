package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"synclab/proxier"
)

// syncLog holds syncs that were told of and not yet recorded.
type syncLog struct {
	pipe  *os.File      // nil: the subject tells nothing
	told  chan struct{} // of a subject without tools: there is something to record
	mu    sync.Mutex
	syncs []proxier.Sync
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

// ended says that a process writes no more: a line that it left torn, when it was killed, is not what the next one's
// first line goes on with.
func (l *syncLog) ended() {
	if l.pipe != nil {
		_, _ = l.pipe.WriteString(endOfWriter)
	}
}

// endOfWriter ends a torn line, and marks it by the empty one after it.
const endOfWriter = "\n\n"

// readSyncLog gives the records of processes that write one after the other, until r ends. What is torn is left out.
func readSyncLog(r io.Reader, take func(proxier.SyncRecord)) error {
	lines := bufio.NewReader(r)
	var bad error // of the line before
	for {
		line, err := lines.ReadBytes('\n')
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
		for record, err := range proxier.ReadSyncLog(bytes.NewReader(line)) {
			if bad = err; err == nil {
				take(record)
			}
		}
	}
}

func (r *repetition) syncLogFile() string { return filepath.Join(r.lab.Dir, "syncs.jsonl") }

// openSyncLog makes the named pipe through which the lab's own proxier, one process after the other, tells of its syncs:
// what cannot be seen from outside. It is read until ctx ends.
func (r *repetition) openSyncLog(ctx context.Context) error {
	path := r.syncLogFile()
	if err := unix.Mkfifo(path, 0o600); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	// Open for writing too: the end of a process is then no end of the file.
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	r.tunnel.log.pipe = pipe
	context.AfterFunc(ctx, func() { pipe.Close() })
	go func() {
		err := readSyncLog(pipe, func(line proxier.SyncRecord) {
			if !line.Stopped {
				r.tunnel.log.add(line.Sync())
				r.told(line.Sync())
				r.tellSync(line.Written, line.Finished)
			}
		})
		if err != nil && ctx.Err() == nil {
			r.fail(err)
		}
	}()
	return nil
}

// tellSync tells when a sync had written its rules, of a subject whose tools would tell of it if it had some. A zero time:
// it failed, and may have written a part until it finished.
func (r *repetition) tellSync(written, finished time.Time) {
	if r.about.hasTools() || r.tunnel == nil {
		return
	}
	if written.IsZero() {
		written = finished
	}
	r.tunnel.visible.ToolEnded(written)
	select {
	case r.tunnel.log.told <- struct{}{}:
	default:
	}
}
