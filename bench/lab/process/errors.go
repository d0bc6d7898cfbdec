package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"synclab/bench/outfile"
)

// Errors keeps the last distinct lines that report errors. Lines that differ only in their numbers are the same.
type Errors struct {
	Most  int // number of lines to keep
	lines []errorLine
}

type errorLine struct {
	key, text string
	count     int
}

// Add adds a line.
func (e *Errors) Add(text string) {
	text = strings.Join(strings.Fields(text), " ")
	line := errorLine{key: numbers.ReplaceAllString(text, "0"), text: text, count: 1}
	if i := slices.IndexFunc(e.lines, func(l errorLine) bool { return l.key == line.key }); i >= 0 {
		line.count += e.lines[i].count
		e.lines = slices.Delete(e.lines, i, i+1)
	}
	if e.lines = append(e.lines, line); len(e.lines) > e.Most {
		e.lines = e.lines[1:]
	}
}

// Lines returns the lines, the newest first, with how often each was added if that is more than once.
func (e *Errors) Lines() (all []string) {
	for _, line := range slices.Backward(e.lines) {
		text := line.text
		if line.count > 1 {
			text += fmt.Sprintf(" (%d times)", line.count)
		}
		all = append(all, text)
	}
	return all
}

var (
	numbers = regexp.MustCompile(`[0-9]+`)
	// header is that of a line of klog: severity, date, time, thread and position.
	header = regexp.MustCompile(`^([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ [^ \]]+\] `)
	// elsewhere are words of errors in other logs, harmless those of levels that report none.
	elsewhere = regexp.MustCompile(`(?i)\b(error|fatal|panic|failed|cannot)\b`)
	harmless  = regexp.MustCompile(`(?i)\blevel"?[=:] ?"?(info|debug|trace)\b`)
)

// Read adds the lines of a log that report errors; if there are none, those of warnings. An entry of klog may have several
// lines.
func (e *Errors) Read(r io.Reader) error {
	warnings := Errors{Most: e.Most}
	var to *Errors // of the current entry
	var entry []string
	end := func() {
		if to != nil {
			to.Add(strings.Join(entry, " "))
		}
		to, entry = nil, nil
	}
	klog := false
	lines := bufio.NewReaderSize(r, mostOfLine)
	for {
		text, err := line(lines)
		switch m := header.FindStringSubmatch(text); {
		case m != nil:
			end()
			klog = true
			switch m[1] {
			case "E", "F":
				to = e
			case "W":
				to = &warnings
			}
			entry = []string{text[len(m[0]):]}
		case klog && strings.HasPrefix(text, "\t"), klog && strings.HasPrefix(text, " >"):
			if len(entry) < mostOfEntry {
				entry = append(entry, text)
			}
		case elsewhere.MatchString(text) && !harmless.MatchString(text):
			end()
			to, entry = e, []string{text}
			end()
		}
		if err != nil {
			end()
			if len(e.lines) == 0 {
				e.lines = warnings.lines
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

// Bounds of what is read of a log: bytes of a line, whose rest is skipped, lines of an entry, and bytes at the log's end.
const (
	mostOfLine  = 16 << 10
	mostOfEntry = 64
	mostOfLog   = 256 << 20
)

func line(r *bufio.Reader) (string, error) {
	text, more, err := r.ReadLine()
	out := string(text)
	for more && err == nil {
		_, more, err = r.ReadLine()
	}
	return out, err
}

// Errors adds what the process's log reports.
func (p *Process) Errors(to *Errors) {
	f, err := outfile.OpenBeside(p.opts.LogFile, os.O_RDONLY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return
	}
	from := max(p.log, size-mostOfLog)
	_ = to.Read(io.NewSectionReader(f, from, size-from)) // a part is better than nothing
}
