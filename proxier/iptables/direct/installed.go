package direct

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"synclab/proxier/kernel/xtables"
)

// part is a stretch of entries of the installed table.
type part struct {
	start, end     uint32 // bytes
	first, entries uint32 // number of the first entry, and how many there are
}

// chain is one that is installed, or is to be.
type chain struct {
	name string
	hook int8 // of a built-in chain, else -1

	// installed holds the chain as it is: its head, if it is no built-in one, its rules, and its foot: the entry of its
	// policy, or the one that returns. A chain that is not installed has no entries.
	installed part
	foot      uint32 // offset
	jump      uint32 // number of its first jump

	emptied       bool  // what is installed of it goes
	deleted       int32 // number of the line that deletes it; 0: none does
	before, after lines // of the payload, in front of what is installed, and behind

	to uint32 // offset in the new table
}

func (c *chain) builtin() bool { return c.hook >= 0 }

// rules of what is installed, without head and foot.
func (c *chain) rules() uint32 {
	if c.builtin() {
		return c.installed.entries - 1
	}
	return c.installed.entries - 2
}

// installed is a table that was read, by chains.
type installed struct {
	*xtables.Table
	// chains: built-in ones in the table's order, then the others by name. The table has the same order, if iptables or
	// this package wrote it.
	chains   []chain
	builtins int
	count    int // of those that are installed; an edit adds others
	ordered  bool
	kept     bool // it is the copy of one that we handed over
	pad      int  // bytes more than the last entry needs
	// jumps are the offsets of all verdicts that hold an offset.
	jumps []uint32
	// chainOf holds 1 + the number of the user chain that begins in a stretch of bucket bytes. There is at most one,
	// since every chain is longer than that.
	chainOf []uint32
}

const bucket = 256

// errForeign: a table may be laid out in ways that only its author understands.
var errForeign = errors.New("not laid out as iptables does")

// index finds the chains of a table, and the rules that hold offsets.
func index(t *xtables.Table) (*installed, error) {
	in := &installed{Table: t, ordered: true, builtins: t.Info.Builtins()}
	// As many as a proxier's table has: two rules to a chain besides its head and its foot, one of which jumps.
	in.chains, in.jumps = make([]chain, 0, t.Info.NumEntries/4), make([]uint32, 0, t.Info.NumEntries/2)
	names, err := in.walk()
	if err != nil {
		return nil, err
	}
	in.count = len(in.chains)
	users := in.chains[in.builtins:]
	for i, kept := 0, string(names); i < len(users); i++ {
		length := len(users[i].name) // of a name in memory that is going to be given back
		users[i].name, kept = kept[:length], kept[length:]
	}
	byName := func(a, b chain) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(users, byName) {
		in.ordered = false
		slices.SortStableFunc(users, byName)
	}
	in.chainOf = make([]uint32, len(t.Entries)/bucket+1)
	for i := range users {
		in.chainOf[users[i].installed.start/bucket] = uint32(in.builtins+i) + 1
	}
	return in, nil
}

// walk goes through the entries once. names are those of the user chains, one after the other.
func (in *installed) walk() (names []byte, err error) {
	names = make([]byte, 0, cap(in.chains)*maxName)
	number := uint32(0)
	for at := 0; ; number++ {
		e, err := in.Wire.EntryAt(in.Entries, at)
		if err != nil {
			return nil, err
		}
		head := e.Head()
		end := at + len(e.Bytes)
		if end == len(in.Entries) {
			if string(head) != "ERROR" {
				return nil, fmt.Errorf("%w: the last entry is a rule", errForeign)
			}
			if len(in.chains) < in.builtins || number+1 != in.Info.NumEntries {
				return nil, fmt.Errorf("%w: %d chains of %d, %d entries of %d", errForeign, len(in.chains), in.builtins, number+1, in.Info.NumEntries)
			}
			in.pad = len(e.Bytes) - in.Wire.HeadSize()
			return names, in.checkFoot()
		}
		if err := in.visit(&e, head, number); err != nil {
			return nil, err
		}
		if head != nil {
			names = append(names, head...)
		}
		at = end
	}
}

// visit takes an entry but the table's last.
func (in *installed) visit(e *xtables.Entry, head []byte, number uint32) error {
	at, end := uint32(e.At), uint32(e.At+len(e.Bytes))
	hook := -1
	if len(in.chains) < in.builtins {
		hook = in.hookAt(at)
	}
	switch {
	case hook >= 0:
		if err := in.begin(chain{name: xtables.HookNames[hook], hook: int8(hook)}, at, number); err != nil {
			return err
		}
	case head != nil:
		if len(in.chains) < in.builtins || len(e.Bytes) != in.Wire.HeadSize() {
			return fmt.Errorf("%w: head of %q", errForeign, head)
		}
		if err := in.begin(chain{name: text(head), hook: -1}, at, number); err != nil {
			return err
		}
	case len(in.chains) == 0:
		return fmt.Errorf("%w: a rule before all chains", errForeign)
	}
	c := &in.chains[len(in.chains)-1]
	c.foot, c.installed.end = at, end
	c.installed.entries++
	if e.IsVerdict() && e.Verdict() >= 0 {
		in.jumps = append(in.jumps, end-uint32(len(e.Target))+xtables.Header)
	}
	return nil
}

func (in *installed) hookAt(at uint32) int {
	for hook := range xtables.Hooks {
		if in.Info.ValidHooks>>hook&1 == 1 && in.Info.HookEntry[hook] == at {
			return hook
		}
	}
	return -1
}

// begin ends the chain before.
func (in *installed) begin(c chain, at, number uint32) error {
	if err := in.checkFoot(); err != nil {
		return err
	}
	c.installed = part{start: at, first: number}
	c.jump = uint32(len(in.jumps))
	in.chains = append(in.chains, c)
	return nil
}

// checkFoot checks how the last chain so far ends.
func (in *installed) checkFoot() error {
	if len(in.chains) == 0 {
		return nil
	}
	c := &in.chains[len(in.chains)-1]
	if c.builtin() {
		if c.foot != in.Info.Underflow[c.hook] {
			return fmt.Errorf("%w: the policy of %s is not its last entry", errForeign, c.name)
		}
		return nil
	}
	foot, err := in.Wire.EntryAt(in.Entries, int(c.foot))
	if err != nil {
		return err
	}
	if c.installed.entries < 2 || len(foot.Bytes) != in.Wire.VerdictSize() || !foot.IsVerdict() || foot.Verdict() != verdictReturn {
		return fmt.Errorf("%w: chain %s does not return at its end", errForeign, c.name)
	}
	return nil
}

// chainAt gives the number of the user chain whose first rule is at an offset.
func (in *installed) chainAt(offset uint32) (uint32, bool) {
	start := int(offset) - in.Wire.HeadSize()
	if start < 0 || start >= len(in.Entries) {
		return 0, false
	}
	number := in.chainOf[start/bucket]
	if number == 0 || in.chains[number-1].installed.start != uint32(start) {
		return 0, false
	}
	return number - 1, true
}

// find gives the number of a user chain.
func (in *installed) find(name string) (uint32, bool) {
	i, found := slices.BinarySearchFunc(in.chains[in.builtins:in.count], name, func(c chain, name string) int { return strings.Compare(c.name, name) })
	return uint32(in.builtins + i), found
}

// rules are those of some chains, or of all when none is named, each as iptables-save prints it.
func (in *installed) rules(chains ...string) ([]string, error) {
	d := decoder{wire: in.Wire, chainAt: func(offset uint32) (string, bool) {
		number, ok := in.chainAt(offset)
		if !ok {
			return "", false
		}
		return in.chains[number].name, true
	}}
	var rules []string
	for i := range in.chains {
		c := &in.chains[i]
		if len(chains) > 0 && !slices.Contains(chains, c.name) {
			continue
		}
		at := int(c.installed.start)
		if !c.builtin() {
			at += in.Wire.HeadSize()
		}
		for at < int(c.foot) {
			e, err := in.Wire.EntryAt(in.Entries, at)
			if err != nil {
				return nil, err
			}
			rule, err := d.rule(c.name, e)
			if err != nil {
				return nil, err
			}
			rules = append(rules, rule)
			at += len(e.Bytes)
		}
	}
	return rules, nil
}
