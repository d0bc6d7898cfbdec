package iptables

import (
	"io"
	"sort"
	"strings"

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
	// Written counts the chains that it declares and their rules, by table.
	Written map[Table]Count
	// Deleted is the number of chains it deletes.
	Deleted int

	steps []step // the steps it was made of
	ends  []int  // the line that each step ends with
	last  bool   // once it is accepted, packets reach only desired rules
}

// NewPayload makes a payload of one table from the lines between its first and its COMMIT. The lines belong to no Service
// port.
func NewPayload(table Table, lines []string) *Payload {
	p := &Payload{Written: map[Table]Count{}, commits: 1}
	p.own(Owner{Table: table})
	p.add([]byte("*"+string(table)+"\n"+strings.Join(lines, "\n")+"\nCOMMIT\n"), len(lines)+2)
	return p
}

// span records the owner of the lines from first on, until the next span.
type span struct {
	first int // line number, from 1
	owner Owner
	// ports, if any, record the owner of each line.
	ports []linePort
	// lines is how many lines ports describe; the lines after them are the owner's.
	lines int
}

// linePort records the owner of a span's lines from first on (counted from 0), until the next linePort. A nil port: the
// lines belong to no Service port.
type linePort struct {
	first int
	port  *plan.ServicePort
}

// ownerOf returns the owner of a line of the span.
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

// Owner is what a line of a payload belongs to.
type Owner struct {
	// Table the line belongs to.
	Table Table
	// Port is the Service port that the line's rule belongs to; zero: none.
	Port tracker.ServicePortName
	// Deletes is the chain whose deletion (-X) the line is; empty otherwise.
	Deletes string
	// Commit is true for a COMMIT line: the kernel refused the table, not one line of it.
	Commit bool
}

// IsPort reports whether the line belongs to a Service port.
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

// Text returns the whole payload.
func (p *Payload) Text() []byte {
	text := make([]byte, 0, p.size)
	for _, s := range p.segments {
		text = append(text, s...)
	}
	return text
}

// OwnerOf returns the owner of a line, counted from 1. A line beyond the payload has none.
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

// own sets the owner of the lines from here on.
func (p *Payload) own(o Owner) {
	if last := len(p.spans) - 1; last >= 0 && p.spans[last].ports == nil && p.spans[last].owner == o {
		return
	}
	p.spans = append(p.spans, span{first: p.lines + 1, owner: o})
}

// share sets several Service ports as the owners of the lines from here on.
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
