package direct

import (
	"bytes"
	"fmt"

	"synclab/proxier/iptables"
)

// script is what is left of a payload.
type script struct {
	segments [][]byte                          // each of whole lines
	written  map[iptables.Table]iptables.Count // the chain lines and rules of each table, if known
	rest     []byte                            // of the segment before them
	number   int32                             // of the line that was read last, from 1
	chains   int                               // chain lines of the table, if known
}

// next gives the next line without its newline, which stands behind it in memory.
func (s *script) next() (line []byte, ok bool) {
	for len(s.rest) == 0 {
		if len(s.segments) == 0 {
			return nil, false
		}
		s.rest, s.segments = s.segments[0], s.segments[1:]
	}
	s.number++
	end := bytes.IndexByte(s.rest, '\n')
	if end < 0 {
		end = len(s.rest) // see edit: every line of a table ends in a newline, since COMMIT stands behind it
	}
	line, s.rest = s.rest[:end], s.rest[min(end+1, len(s.rest)):]
	return line, true
}

// table gives the name of the next table; empty at the end.
func (s *script) table() (string, error) {
	line, ok := s.next()
	if !ok {
		return "", nil
	}
	if name, found := bytes.CutPrefix(line, []byte{'*'}); found && len(name) > 0 {
		s.chains = s.written[iptables.Table(name)].Chains
		return string(name), nil
	}
	return "", &lineError{s.number, fmt.Errorf("%q: want a table", line)}
}

// into gives an edit the lines up to COMMIT.
func (s *script) into(e *edit) error {
	for {
		line, ok := s.next()
		if !ok {
			return &lineError{s.number, fmt.Errorf("no COMMIT at the end")}
		}
		if string(line) == "COMMIT" {
			return nil
		}
		if err := e.line(line, s.number); err != nil {
			return &lineError{s.number, err}
		}
	}
}

// room is how many bytes the entries of all its lines may have, most likely: those of chain lines have some twelve times
// as many, those of rules less.
func (s *script) room() int {
	const least = 1 << 20
	return least + 12*s.size()
}

// size is how many bytes are left.
func (s *script) size() int {
	size := len(s.rest)
	for _, segment := range s.segments {
		size += len(segment)
	}
	return size
}
