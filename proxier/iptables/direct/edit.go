package direct

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"unsafe"
)

// run is a number of lines of the payload, one after the other, that begin alike and belong to one chain.
type run struct {
	text  []byte // whole lines, with their newlines
	skip  int32  // bytes of each line in front of the rule
	first int32  // number of the first line
	count int32
	next  int32 // 1 + number of the run that follows; 0: none does
}

// lines are runs, by 1 + their numbers; 0: none.
type lines struct{ head, tail int32 }

// edit is what a payload says of one table.
type edit struct {
	*installed // with the chains that the payload adds, behind those that are installed
	runs       []run
	// declared are the numbers of the chains that the payload names in chain lines. These are nearly all of those that
	// are installed, or few: hence there is no such map of the installed ones.
	declared map[string]uint32
	removes  bool
	// placed are the rules of chains in which the payload puts rules between others: those that are installed by their
	// number, from 0, the payload's by their run's complement.
	placed map[uint32][]int32
	recent uint32 // number of the chain that was named last: payloads are sorted, mostly
}

// newEdit begins an edit of so many chain lines, if that is known: lists that grow leave their own size, and more, to
// the collector.
func newEdit(in *installed, chains int) *edit {
	in.chains = slices.Grow(in.chains, max(0, in.builtins+chains-in.count))
	return &edit{installed: in, declared: make(map[string]uint32, chains), runs: make([]run, 0, chains)}
}

// line takes one line but those that begin and end a table.
func (e *edit) line(line []byte, number int32) error {
	if len(line) > 3 {
		switch {
		case line[0] == ':':
			return e.declare(line[1:])
		case string(line[:3]) == "-A ":
			return e.add(line, number)
		case string(line[:3]) == "-I ":
			return e.insert(line, number)
		case string(line[:3]) == "-X ":
			return e.remove(line[3:], number)
		}
	}
	return fmt.Errorf("%q is no line that is known here", line)
}

// target gives the number of a user chain that a rule goes to. It may be deleted: then the line that does so is to blame.
func (e *edit) target(name []byte) (uint32, bool) {
	number, ok := e.declared[string(name)]
	if !ok {
		number, ok = e.find(text(name))
	}
	return number, ok
}

// user gives the number of a user chain.
func (e *edit) user(name []byte) (uint32, bool) {
	number, ok := e.target(name)
	return number, ok && e.chains[number].deleted == 0
}

// any gives the number of a chain.
func (e *edit) any(name []byte) (uint32, error) {
	if e.chains[e.recent].name == text(name) && e.chains[e.recent].deleted == 0 {
		return e.recent, nil
	}
	number, ok := e.user(name)
	for i := 0; i < e.builtins && !ok; i++ {
		number, ok = uint32(i), e.chains[i].name == text(name)
	}
	if !ok {
		return 0, fmt.Errorf("there is no chain %q", name)
	}
	e.recent = number
	return number, nil
}

// maxName is how long iptables lets a chain's name be.
const maxName = 28

// declare makes a chain, or empties it.
func (e *edit) declare(rest []byte) error {
	name, found := bytes.CutSuffix(rest, []byte(" - [0:0]"))
	if !found {
		return fmt.Errorf("chain line %q: want no policy and no counters", rest)
	}
	if len(name) == 0 || len(name) > maxName || bytes.IndexByte(name, ' ') >= 0 {
		return fmt.Errorf("chain name %q: want 1 to %d characters", name, maxName)
	}
	for i := range e.builtins {
		if e.chains[i].name == text(name) {
			return fmt.Errorf("%s is a built-in chain", name)
		}
	}
	number, there := e.recent+1, false
	if int(number) < e.count && int(number) >= e.builtins {
		there = e.chains[number].name == text(name) // the next one, as in a payload that names all
	}
	if !there {
		number, there = e.user(name)
	}
	if !there {
		number = uint32(len(e.chains))
		e.chains = append(e.chains, chain{name: text(name), hook: -1})
	}
	c := &e.chains[number]
	c.emptied, c.before, c.after = true, lines{}, lines{}
	delete(e.placed, number)
	e.declared[c.name], e.recent = number, number
	return nil
}

// add takes a rule behind all others of its chain.
func (e *edit) add(line []byte, number int32) error {
	name, _, _ := bytes.Cut(line[3:], []byte{' '})
	c, err := e.any(name)
	if err != nil {
		return err
	}
	skip := int32(min(3+len(name)+1, len(line)))
	l := &e.chains[c].after
	if l.tail > 0 && e.runs[l.tail-1].extend(line, skip, number) {
		return nil
	}
	e.runs = append(e.runs, run{text: withNewline(line), skip: skip, first: number, count: 1})
	if l.tail > 0 {
		e.runs[l.tail-1].next = int32(len(e.runs))
	} else {
		l.head = int32(len(e.runs))
	}
	l.tail = int32(len(e.runs))
	return nil
}

// insert takes a rule in front of others of its chain.
func (e *edit) insert(line []byte, number int32) error {
	name, rest, _ := bytes.Cut(line[3:], []byte{' '})
	place, _, _ := bytes.Cut(rest, []byte{' '})
	at, err := strconv.Atoi(string(place))
	if err != nil || at < 1 {
		return fmt.Errorf("%q: want a place from 1 on", line)
	}
	c, err := e.any(name)
	if err != nil {
		return err
	}
	r := run{text: withNewline(line), skip: int32(3 + len(name) + 1 + len(place) + 1), first: number, count: 1}
	if order, between := e.placed[c]; between || at > 1 {
		return e.place(c, at, order, r)
	}
	l := &e.chains[c].before
	r.next = l.head
	e.runs = append(e.runs, r)
	l.head = int32(len(e.runs))
	return nil
}

// place takes a rule between others of its chain: of those that are installed, and those put in front of them before.
func (e *edit) place(number uint32, at int, order []int32, r run) error {
	c := &e.chains[number]
	if c.emptied || c.after != (lines{}) || c.installed.entries == 0 {
		return fmt.Errorf("%q: between rules of the payload, none can be put", r.text)
	}
	if order == nil {
		for n := c.before.head; n > 0; n = e.runs[n-1].next {
			order = append(order, ^(n - 1))
		}
		for i := range int32(c.rules()) {
			order = append(order, i)
		}
		c.before = lines{}
	}
	if at > len(order)+1 {
		return fmt.Errorf("%q: the chain has %d rules", r.text, len(order))
	}
	e.runs = append(e.runs, r)
	if e.placed == nil {
		e.placed = map[uint32][]int32{}
	}
	e.placed[number] = slices.Insert(order, at-1, ^int32(len(e.runs)-1))
	return nil
}

// remove deletes a chain. Whether a rule refers to it, shows when all rules are known.
func (e *edit) remove(name []byte, number int32) error {
	n, ok := e.user(name)
	if !ok {
		return fmt.Errorf("there is no chain %q to delete", name)
	}
	c := &e.chains[n]
	if _, between := e.placed[n]; between || c.before != (lines{}) || c.after != (lines{}) || c.installed.entries > 2 && !c.emptied {
		return fmt.Errorf("chain %q has rules", name)
	}
	c.deleted, e.removes = number, true
	return nil
}

// withNewline is a line of the payload with the newline behind it.
func withNewline(line []byte) []byte { return line[: len(line)+1 : cap(line)] }

// extend takes a line that stands right behind the run.
func (r *run) extend(line []byte, skip, number int32) bool {
	length := len(r.text) + len(line) + 1
	if r.skip != skip || r.first+r.count != number || length > cap(r.text) ||
		unsafe.Pointer(unsafe.SliceData(line)) != unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.text)), len(r.text)) {
		return false
	}
	r.text = r.text[:length]
	r.count++
	return true
}
