package host

import (
	"fmt"
	"strings"
	"sync"

	"synclab/bench/lab/process"
	"synclab/bench/raw"
)

// mostErrors is the number of lines that an error of a subject that does not converge has, mostOfError the characters of
// each.
const (
	mostErrors  = 3
	mostOfError = raw.LineLength
)

// failures are the last distinct errors of the subject's syncs and tools, as the lab sees them.
type failures struct {
	mu   sync.Mutex
	last process.Errors
}

func (f *failures) add(text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last.Most = mostErrors
	f.last.Add(text)
}

// forget drops the errors of earlier steps: what does not converge later has other reasons.
func (f *failures) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = process.Errors{}
}

func (f *failures) lines() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last.Lines()
}

// Why adds to the error of a subject that does not converge what the subject itself and its tools report.
func (r *Host) Why(err error) error { return r.why(r.Process(), err) }

// why is Why for a process; nil: the subject runs in this one.
func (r *Host) why(p *process.Process, err error) error {
	if err == nil { // the log may be long
		return nil
	}
	lines := r.failed.lines()
	if p != nil {
		log := process.Errors{Most: mostErrors}
		p.Errors(&log)
		if own := log.Lines(); len(own) > 0 { // the same failures, with their causes
			lines = own
		}
	}
	if len(lines) == 0 {
		return err
	}
	for i, line := range lines {
		lines[i] = raw.Brief(line, mostOfError)
	}
	return fmt.Errorf("%w; the subject reports: %s", err, strings.Join(lines, " | "))
}
