package live

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/sim"
)

// line is one object. Lines of the snapshot come first, then one line with opStart, then the changes.
type line struct {
	Op     sim.Op          `json:"op"`
	Due    time.Duration   `json:"due_ns,omitempty"`
	At     time.Time       `json:"at,omitzero"`
	Kind   string          `json:"kind,omitempty"`
	Object json.RawMessage `json:"object,omitempty"`
}

const (
	opHave  sim.Op = "Have"  // an object of the snapshot
	opStart sim.Op = "Start" // the snapshot is complete
)

// Encoder writes a snapshot and then changes as lines of JSON, each in one write.
type Encoder struct{ w io.Writer }

// NewEncoder returns an Encoder that writes to w.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Snapshot writes the snapshot. Call it once, first. It can be Options.Snapshot.
func (e *Encoder) Snapshot(o *sim.Objects) error {
	w := bufio.NewWriterSize(e.w, 1<<16)
	for _, object := range o.All() {
		if err := write(w, line{Op: opHave}, object); err != nil {
			return err
		}
	}
	return errors.Join(write(w, line{Op: opStart}, nil), w.Flush())
}

// Change writes one change. It can be Options.Change.
func (e *Encoder) Change(c Change) error {
	return write(e.w, line{Op: c.Op, Due: c.Due, At: c.At}, c.Object)
}

func write(w io.Writer, l line, object runtime.Object) error {
	if object != nil {
		var err error
		if l.Kind, err = kindOf(object); err != nil {
			return err
		}
		if l.Object, err = json.Marshal(object); err != nil {
			return fmt.Errorf("%s: %w", l.Op, err)
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// Decoder reads what an Encoder wrote.
type Decoder struct {
	r      *bufio.Reader
	number int
}

// NewDecoder returns a Decoder that reads from r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReaderSize(r, mostOfLine)} }

// mostOfLine is the size in bytes of the longest line: an API server accepts objects of 3 MiB.
const mostOfLine = 4 << 20

// Snapshot reads the snapshot. Call it before Next.
func (d *Decoder) Snapshot() (*sim.Objects, error) {
	var objects sim.Objects
	for {
		l, object, err := d.read()
		switch {
		case err == io.EOF:
			return nil, d.wrong(io.ErrUnexpectedEOF)
		case err != nil:
			return nil, err
		case l.Op == opStart:
			return &objects, nil
		case l.Op != opHave:
			return nil, d.wrong(fmt.Errorf("%s before the snapshot is complete", l.Op))
		}
		objects.Add(object)
	}
}

// Next waits for one change and reads it. The error is io.EOF at the end.
func (d *Decoder) Next() (Change, error) {
	l, object, err := d.read()
	if err != nil {
		return Change{}, err
	}
	switch l.Op {
	case sim.Add, sim.Update, sim.Delete:
		return Change{Change: sim.Change{Due: l.Due, Op: l.Op, Object: object}, At: l.At}, nil
	}
	return Change{}, d.wrong(fmt.Errorf("%q is not a change: want Add, Update or Delete", l.Op))
}

func (d *Decoder) read() (line, runtime.Object, error) {
	var l line
	text, err := d.r.ReadSlice('\n')
	if err == io.EOF && len(text) == 0 {
		return l, nil, io.EOF
	}
	d.number++
	switch err {
	case io.EOF:
		err = io.ErrUnexpectedEOF // a line without an end: its writer was killed
	case bufio.ErrBufferFull:
		err = fmt.Errorf("longer than %d MiB", mostOfLine>>20)
	}
	if err == nil {
		err = strict(text, &l)
	}
	if err != nil || l.Op == opStart {
		return l, nil, d.wrong(err)
	}
	object, err := newObject(l.Kind)
	if err == nil {
		err = json.Unmarshal(l.Object, object)
	}
	return l, object, d.wrong(err)
}

func strict(text []byte, l *line) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(l)
}

func (d *Decoder) wrong(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("live: line %d: %w", d.number, err)
}

func kindOf(object runtime.Object) (string, error) {
	switch object.(type) {
	case *corev1.Service:
		return "Service", nil
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice", nil
	case *corev1.Node:
		return "Node", nil
	}
	return "", fmt.Errorf("live: %T is not a Service, EndpointSlice or Node", object)
}

func newObject(kind string) (runtime.Object, error) {
	switch kind {
	case "Service":
		return &corev1.Service{}, nil
	case "EndpointSlice":
		return &discoveryv1.EndpointSlice{}, nil
	case "Node":
		return &corev1.Node{}, nil
	}
	return nil, fmt.Errorf("kind %q is not a Service, EndpointSlice or Node", kind)
}
