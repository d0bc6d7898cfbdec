package direct

import (
	"fmt"

	"synclab/proxier/kernel/xtables"
)

// encoder writes rules as entries of one table.
type encoder struct {
	wire      *xtables.Wire
	revisions revisions
	block     *block
	// number gives the number of a chain.
	number func(name []byte) (uint32, bool)
	// jumps are the offsets in the block where, until all chains have their place, a chain's number stands for the
	// offset of its first rule.
	jumps   []uint32
	entries uint32 // written
}

// rule is one rule that is being encoded.
type rule struct {
	*encoder
	start   int
	matches [kinds]int // offset of what follows the match's header; 0: the rule has no such match
	wanting [kinds]bool
	inverse bool // the next option is
	words   words
}

// rule encodes a rule from what follows its chain: addresses, interface and protocol, matches with their options, and at
// last the target. The order of the matches stays.
func (e *encoder) rule(args []byte) error {
	start, err := e.block.take(e.wire.Entry)
	if err != nil {
		return err
	}
	r := rule{encoder: e, start: start, words: words{args}}
	targeted := false
	for !targeted {
		word, err := r.words.next()
		if err != nil {
			return err
		}
		if word == nil {
			break
		}
		if targeted, err = r.word(text(word)); err != nil {
			return err
		}
	}
	return r.end(targeted)
}

// word takes one word with its values. A target takes the rest of the rule.
func (r *rule) word(word string) (targeted bool, err error) {
	if word == "!" {
		if r.inverse {
			return false, fmt.Errorf("two ! in a row")
		}
		r.inverse = true
		return false, nil
	}
	switch word {
	case "-j", "-g":
		if err = r.uninverted(word); err == nil {
			err = r.target(word == "-g")
		}
		return true, err
	case "-m":
		if err = r.uninverted(word); err == nil {
			err = r.match()
		}
	case "-s", "-d", "-i", "-o", "-p":
		err = r.basic(word)
	default:
		err = r.option(word)
	}
	r.inverse = false
	return false, err
}

func (r *rule) uninverted(word string) error {
	if r.inverse {
		return fmt.Errorf("! before %s", word)
	}
	return nil
}

// end checks that nothing is missing, and says where the rule ends. A rule without a target goes on with the next entry.
func (r *rule) end(targeted bool) error {
	if r.inverse {
		return fmt.Errorf("! before nothing")
	}
	for kind, wanting := range r.wanting {
		if wanting {
			return fmt.Errorf("match %s lacks an option", matches[kind].name)
		}
	}
	if !targeted {
		r.endMatches()
		at, err := r.extension("", verdictSize, 0)
		if err != nil {
			return err
		}
		r.block.put32(at, uint32(r.block.size))
	}
	r.block.put16(r.start+r.wire.TargetOffset+2, uint16(r.block.size-r.start))
	r.entries++
	return nil
}

// endMatches marks where the target begins.
func (r *rule) endMatches() {
	r.block.put16(r.start+r.wire.TargetOffset, uint16(r.block.size-r.start))
}

// extension appends a match or a target and gives the offset of what follows its header: size zero bytes.
func (e *encoder) extension(name string, size int, revision uint8) (int, error) {
	whole := xtables.Aligned(xtables.Header + size)
	at, err := e.block.take(whole)
	if err != nil {
		return 0, err
	}
	e.block.put16(at, uint16(whole))
	copy(e.block.entries[at+2:], name)
	e.block.put8(at+2+xtables.ExtensionName, revision)
	return at + xtables.Header, nil
}

// verdictSize and headSize are the sizes of what follows the header of a verdict, and of the target of a chain's head.
const (
	verdictSize = 4
	headSize    = xtables.ChainName
)

// plain appends an entry of one target without matches.
func (e *encoder) plain(target string, size int) (at int, err error) {
	start, err := e.block.take(e.wire.Entry)
	if err != nil {
		return 0, err
	}
	if at, err = e.extension(target, size, 0); err != nil {
		return 0, err
	}
	e.block.put16(start+e.wire.TargetOffset, uint16(e.wire.Entry))
	e.block.put16(start+e.wire.TargetOffset+2, uint16(e.block.size-start))
	e.entries++
	return at, nil
}

// head begins a user chain, and "ERROR" ends a table.
func (e *encoder) head(name string) error {
	at, err := e.plain("ERROR", headSize)
	if err == nil {
		copy(e.block.entries[at:at+headSize], name)
	}
	return err
}

// foot ends a user chain.
func (e *encoder) foot() error {
	at, err := e.plain("", verdictSize)
	if err == nil {
		verdict := int32(verdictReturn)
		e.block.put32(at, uint32(verdict))
	}
	return err
}
