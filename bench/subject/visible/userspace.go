package visible

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/outfile"
	"synclab/proxier/kernel"
	"synclab/proxier/tracker"
	"synclab/proxier/userspace"
)

// userspaceReader reads Synclab's backend userspace, variant legacy. The kernel knows only which socket of the proxier's
// process a Service port has. The process itself reports the endpoints of each socket, in its endpoint log. So a state is
// visible once the process has reported it and a rule leads to its socket.
type userspaceReader struct {
	*legacy
	log  *os.File
	read int64 // of the log
	// lines has the last line of each Service port.
	lines map[portKey]userspace.Line
}

func newUserspace(families []corev1.IPFamily, log string) (*userspaceReader, error) {
	file, err := outfile.OpenBeside(log, os.O_RDONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("endpoint log: %w", err)
	}
	tables, err := newLegacy(families)
	if err != nil {
		file.Close()
		return nil, err
	}
	return &userspaceReader{legacy: tables, log: file, lines: map[portKey]userspace.Line{}}, nil
}

func (r *userspaceReader) Close() {
	r.legacy.Close()
	r.log.Close()
}

// Endpoint: the log has the addresses themselves.
func (r *userspaceReader) Endpoint(_ tracker.ServicePortName, text string) string { return text }

// Generation combines the tables' with the size of the log, which only grows.
func (r *userspaceReader) Generation() (Generation, error) {
	g, err := r.legacy.Generation()
	if err != nil {
		return g, err
	}
	stat, err := r.log.Stat()
	if err != nil {
		return g, fmt.Errorf("endpoint log: %w", err)
	}
	return withLog(g, stat.Size()), nil
}

func withLog(g Generation, size int64) Generation {
	g.Dispatch = g.Dispatch*31 + uint64(size)
	return g
}

func (r *userspaceReader) Look() (Snapshot, error) {
	if err := r.follow(); err != nil {
		return nil, err
	}
	at, err := r.legacy.Generation()
	jumps := &legacyJumps{legacy: r.legacy, tables: map[corev1.IPFamily]*kernel.Jumps{}, at: at}
	return &userspaceLook{jumps, r, r.read, map[corev1.IPFamily]map[uint16]bool{}}, err
}

// follow reads the new lines of the log.
func (r *userspaceReader) follow() error {
	lines := bufio.NewReader(io.NewSectionReader(r.log, r.read, 1<<62))
	for {
		text, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return nil // the rest is an incomplete line, or nothing
		}
		if err != nil {
			return fmt.Errorf("endpoint log: %w", err)
		}
		r.read += int64(len(text))
		var line userspace.Line
		if err := json.Unmarshal(bytes.TrimSpace(text), &line); err != nil {
			return fmt.Errorf("endpoint log: %q: %w", text, err)
		}
		if key := (portKey{line.Family, line.Name()}); line.Started {
			for known := range r.lines {
				if known.family == line.Family {
					delete(r.lines, known)
				}
			}
		} else if line.Socket == 0 {
			delete(r.lines, key)
		} else {
			r.lines[key] = line
		}
	}
}

// userspaceLook reads the log up to a size, and copies of the tables.
type userspaceLook struct {
	*legacyJumps
	reader *userspaceReader
	size   int64
	// sockets have the numbers that rules lead to.
	sockets map[corev1.IPFamily]map[uint16]bool
}

// Port returns the reported endpoints. The proxier has one list for each Service port. The other list is hidden.
func (l *userspaceLook) Port(family corev1.IPFamily, port tracker.ServicePortName) (s State, err error) {
	line := l.reader.lines[portKey{family, port}]
	s.Cluster, s.Local = line.Cluster, line.Local
	s.Hidden.Cluster, s.Hidden.Local = len(s.Local) > 0, len(s.Cluster) > 0
	return s, nil
}

// Dispatched looks for a rule that leads to the port's socket. Those of the cluster IP and of other frontends come in one
// commit.
func (l *userspaceLook) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	sockets := l.sockets[family]
	if sockets == nil {
		rules, err := l.rules(family, userspace.PortalsOwn)
		if err != nil {
			return false, false, err
		}
		sockets = map[uint16]bool{}
		for _, rule := range rules {
			sockets[rule.DNAT.Port()] = true
		}
		l.sockets[family] = sockets
	}
	line := l.reader.lines[portKey{family, port}]
	there := sockets[line.Socket]
	return there && len(line.Cluster) > 0, there && len(line.Local) > 0, nil
}

// Unrecognised: a line has no parts that this reader does not know.
func (*userspaceLook) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) {
	return "", nil
}

func (l *userspaceLook) Generation() (Generation, error) { return withLog(l.at, l.size), nil }
func (l *userspaceLook) Close()                          { l.close() }
