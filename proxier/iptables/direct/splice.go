package direct

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"synclab/proxier/kernel/xtables"
)

// lineError says which line of a payload is to blame.
type lineError struct {
	line int32
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }
func (e *lineError) Unwrap() error { return e.err }

// kept is a stretch of rules that stay, counters included: so many, by their numbers in the new and the old table.
type kept struct{ to, from, count uint32 }

// splicer writes the new table: what stays is copied, what the payload says is encoded.
type splicer struct {
	*edit
	encoder
	info xtables.Info // of the new table
	kept []kept
}

// splice makes the new table of an edit, in the memory of the old one if that has room and is in order: the old one can
// then not be read any more. The caller closes the block, also after an error.
func splice(e *edit, revisions revisions) (*splicer, error) {
	b, err := e.memory()
	if err != nil {
		return nil, err
	}
	s := &splicer{edit: e, encoder: encoder{wire: e.Wire, revisions: revisions, block: b, number: e.target}, info: e.Info}
	s.encoder.jumps = make([]uint32, 0, len(e.installed.jumps))
	return s, s.write()
}

// memory is where the new table is written.
func (e *edit) memory() (*block, error) {
	if _, start := e.Room(); e.ordered && start > leastRoom {
		return blockBefore(e.Table, e.kept), nil
	}
	size := len(e.Entries)
	for i := range e.runs {
		size += 5 * len(e.runs[i].text) // more or less: what is not used costs nothing, what is missing will be had
	}
	return newBlock(size)
}

// leastRoom is more than the kernel's answer has in front of the entries by itself.
const leastRoom = 4096

// releaseGap is how far the reading of the old table may be ahead of the writing of the new one before memory between
// them is given back: it is a full sync, then, and what is between them is not going to be written.
const releaseGap = 64 << 20

func (s *splicer) write() error {
	for _, number := range s.order() {
		c := &s.chains[number]
		if err := s.chain(c, s.placed[number]); err != nil {
			return err
		}
		if s.ordered && c.installed.entries > 0 {
			s.block.read(int(c.installed.end))
			if s.block.gap() > releaseGap {
				s.Release(int(c.installed.end))
			}
		}
	}
	s.block.limit = len(s.block.entries)
	if err := s.end(); err != nil {
		return err
	}
	s.info.NumEntries, s.info.Size = s.entries, uint32(s.block.size)
	return s.resolve()
}

// end ends the table, with a pad.
func (s *splicer) end() error {
	start := s.block.size
	if err := s.head("ERROR"); err != nil {
		return err
	}
	if _, err := s.block.take(nextPad(s.pad)); err != nil {
		return err
	}
	s.block.put16(start+s.wire.TargetOffset+2, uint16(s.block.size-start))
	return nil
}

// order lists the chains of the new table: built-in ones, then the others by name.
func (s *splicer) order() []uint32 {
	added := make([]uint32, len(s.chains)-s.count)
	for i := range added {
		added[i] = uint32(s.count + i)
	}
	slices.SortFunc(added, func(a, b uint32) int { return strings.Compare(s.chains[a].name, s.chains[b].name) })
	order := make([]uint32, 0, len(s.chains))
	for number := range s.count {
		for number >= s.builtins && len(added) > 0 && s.chains[added[0]].name < s.chains[number].name {
			order, added = append(order, added[0]), added[1:]
		}
		order = append(order, uint32(number))
	}
	return append(order, added...)
}

// chain writes one chain, if it is not deleted. placed is as in edit.
func (s *splicer) chain(c *chain, placed []int32) error {
	c.to = uint32(s.block.size)
	switch {
	case c.deleted > 0:
		return nil
	case c.builtin():
		s.info.HookEntry[c.hook] = c.to
		if err := s.renew(c, placed, c.installed.start, c.installed.first); err != nil {
			return err
		}
		s.info.Underflow[c.hook] = uint32(s.block.size) - (c.installed.end - c.foot)
		return nil
	case c.emptied:
		s.block.read(int(c.installed.end))
		if err := s.head(c.name); err != nil {
			return err
		}
		if err := s.lines(c.before); err != nil {
			return err
		}
		if err := s.lines(c.after); err != nil {
			return err
		}
		return s.foot()
	}
	first := c.installed.start + uint32(s.wire.HeadSize())
	if err := s.copy(c, c.installed.start, first, c.installed.first, 1); err != nil {
		return err
	}
	return s.renew(c, placed, first, c.installed.first+1)
}

// renew copies the rules of a chain that stays, and its foot, with the payload's lines around the rules, or between them.
func (s *splicer) renew(c *chain, placed []int32, start, first uint32) error {
	if err := s.lines(c.before); err != nil {
		return err
	}
	between := s.copy
	if placed != nil {
		between = func(c *chain, start, _, first, _ uint32) error { return s.interleave(c, placed, start, first) }
	}
	if err := between(c, start, c.foot, first, c.rules()); err != nil {
		return err
	}
	if err := s.lines(c.after); err != nil {
		return err
	}
	return s.copy(c, c.foot, c.installed.end, first+c.rules(), 1)
}

// interleave writes the installed rules of a chain and the payload's between them.
func (s *splicer) interleave(c *chain, placed []int32, start, first uint32) error {
	starts := []uint32{start}
	for start < c.foot {
		rule, err := s.edit.Wire.EntryAt(s.Entries, int(start))
		if err != nil {
			return err
		}
		start += uint32(len(rule.Bytes))
		starts = append(starts, start)
	}
	for _, rule := range placed {
		var err error
		if rule < 0 {
			err = s.run(&s.runs[^rule])
		} else {
			err = s.copy(c, starts[rule], starts[rule+1], first+uint32(rule), 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copy takes entries of a chain over, from one offset to another.
func (s *splicer) copy(c *chain, start, end, first, entries uint32) error {
	s.block.read(int(end)) // what is copied may lie where it is copied to
	at, err := s.block.reserve(int(end - start))
	if err != nil {
		return err
	}
	copy(s.block.entries[at:], s.Entries[start:end])
	for _, jump := range s.installed.jumps[c.jump:] {
		if jump >= end {
			break
		}
		if jump >= start {
			if err := s.relocate(jump, jump-start+uint32(at)); err != nil {
				return err
			}
		}
	}
	if last := len(s.kept) - 1; last >= 0 && s.kept[last].to+s.kept[last].count == s.entries && s.kept[last].from+s.kept[last].count == first {
		s.kept[last].count += entries
	} else {
		s.kept = append(s.kept, kept{s.entries, first, entries})
	}
	s.entries += entries
	return nil
}

// relocate makes a copied verdict right: that of a rule without a target is the offset of the next rule, every other one
// is that of a chain's first rule.
func (s *splicer) relocate(from, to uint32) error {
	const toEnd = verdictSize + 4 // of the target, which is aligned
	verdict := s.block.get32(int(to))
	if verdict == from+toEnd {
		s.block.put32(int(to), to+toEnd)
		return nil
	}
	number, ok := s.chainAt(verdict)
	if !ok {
		return fmt.Errorf("%w: the rule before byte %d goes on at byte %d", errForeign, from+toEnd, verdict)
	}
	s.block.put32(int(to), number)
	s.encoder.jumps = append(s.encoder.jumps, to)
	return nil
}

// lines encodes lines of the payload.
func (s *splicer) lines(l lines) error {
	for n := l.head; n > 0; n = s.runs[n-1].next {
		if err := s.run(&s.runs[n-1]); err != nil {
			return err
		}
	}
	return nil
}

func (s *splicer) run(r *run) error {
	rest := r.text
	for i := range r.count {
		end := bytes.IndexByte(rest, '\n')
		if err := s.rule(rest[min(int(r.skip), end):end]); err != nil {
			return &lineError{r.first + i, err}
		}
		rest = rest[end+1:]
	}
	return nil
}

// resolve puts offsets in place of the numbers of chains, when all have their place.
func (s *splicer) resolve() error {
	head := uint32(s.wire.HeadSize())
	for _, jump := range s.encoder.jumps {
		c := &s.chains[s.block.get32(int(jump))]
		if c.deleted > 0 {
			return &lineError{c.deleted, fmt.Errorf("a rule refers to chain %s", c.name)}
		}
		s.block.put32(int(jump), c.to+head)
	}
	return nil
}
