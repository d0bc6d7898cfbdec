package iptables

import (
	"io"
	"sort"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Payload is the input of one iptables-restore.
type Payload struct {
	segments [][]byte
	size     int
	lines    int
	commits  int
	spans    []span
	// Written is what it declares, by table.
	Written map[Table]Count
	// Deleted is the number of chains it deletes.
	Deleted int

	steps []step // what it was made of
	ends  []int  // the line that each step ends with
	last  bool   // when it is taken, all that packets may reach is as wanted
}

// span says whose the lines from first on are, until the next span.
type span struct {
	first int // line number, from 1
	owner Owner
	// ports, where there are any, say whose each line is.
	ports []linePort
	// lines that ports tell of; those after are the owner's.
	lines int
}

// linePort says whose the lines of a span are from first on (counted from 0), until the next one's. port nil: nobody's.
type linePort struct {
	first int
	port  *plan.ServicePort
}

// ownerOf a line of the span.
func (s *span) ownerOf(line int) Owner {
	owner := s.owner
	if len(s.ports) > 0 && line-s.first < s.lines {
		i := sort.Search(len(s.ports), func(i int) bool { return s.ports[i].first > line-s.first })
		if i > 0 && s.ports[i-1].port != nil {
			owner.Port = s.ports[i-1].port.Name
		}
	}
	return owner
}

// Owner is whose a line of a payload is.
type Owner struct {
	// Table the line belongs to.
	Table Table
	// Port is the Service port whose rule it is; zero when the line is not a Service port's.
	Port tracker.ServicePortName
	// Deletes is the chain whose deletion (-X) the line is; empty otherwise.
	Deletes string
	// Commit is true for a COMMIT line: the kernel refused the table, not one line of it.
	Commit bool
}

// IsPort says whether the line is a Service port's.
func (o Owner) IsPort() bool { return o.Port.Namespace != "" }

// Size is the payload's length in bytes.
func (p *Payload) Size() int { return p.size }

// WriteTo writes the payload.
func (p *Payload) WriteTo(w io.Writer) (int64, error) {
	var written int64
	for _, s := range p.segments {
		n, err := w.Write(s)
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Segments are the payload in pieces, each of whole lines. They are the payload's own: not to be changed.
func (p *Payload) Segments() [][]byte { return p.segments }

// Text is the whole payload.
func (p *Payload) Text() []byte {
	text := make([]byte, 0, p.size)
	for _, s := range p.segments {
		text = append(text, s...)
	}
	return text
}

// OwnerOf a line, from 1. A line beyond the payload is nobody's.
func (p *Payload) OwnerOf(line int) Owner {
	if line < 1 || line > p.lines {
		return Owner{}
	}
	i := sort.Search(len(p.spans), func(i int) bool { return p.spans[i].first > line })
	if i == 0 {
		return Owner{}
	}
	return p.spans[i-1].ownerOf(line)
}

// own marks the lines from here on as somebody's.
func (p *Payload) own(o Owner) {
	if last := len(p.spans) - 1; last >= 0 && p.spans[last].ports == nil && p.spans[last].owner == o {
		return
	}
	p.spans = append(p.spans, span{first: p.lines + 1, owner: o})
}

// share marks the lines from here on as those of several Service ports.
func (p *Payload) share(table Table, ports []linePort, lines int) {
	p.spans = append(p.spans, span{first: p.lines + 1, owner: Owner{Table: table}, ports: ports, lines: lines})
}

// add appends text of so many lines, without copying it.
func (p *Payload) add(text []byte, lines int) {
	if len(text) == 0 {
		return
	}
	p.segments = append(p.segments, text)
	p.size += len(text)
	p.lines += lines
}

func (p *Payload) count(table Table, chains, rules int) {
	c := p.Written[table]
	p.Written[table] = Count{Chains: c.Chains + chains, Rules: c.Rules + rules}
}
