package direct

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/xtables"
)

// block is a table in the making, in memory that Go does not manage. Its first xtables.ReplaceHeader bytes are left for
// the socket option; offsets count from behind them, as the kernel's do.
type block struct {
	mapping []byte
	entries []byte // of the mapping, all that there is room for
	size    int    // of entries, bytes that are taken

	// borrowed memory is that of a table that is being read: it begins at old, and was read up to limit, in offsets of
	// the block. From used on memory is not zero.
	borrowed         bool
	old, limit, used int
}

// errNoRoom: the new table caught up with the one that is being read.
var errNoRoom = errors.New("no room for the new table")

// newBlock reserves room; none of it costs memory before it is written.
func newBlock(room int) (*block, error) {
	const least = 1 << 20
	mapping, err := unix.Mmap(-1, 0, xtables.ReplaceHeader+max(room, least),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("room for a table of %d bytes: %w", room, err)
	}
	return &block{mapping: mapping, entries: mapping[xtables.ReplaceHeader:]}, nil
}

// blockBefore takes the memory in front of a table, and as it is read, its own. Memory that was used before is not zero.
func blockBefore(t *xtables.Table, used bool) *block {
	memory, start := t.Room()
	old := start - xtables.ReplaceHeader
	b := &block{mapping: memory, entries: memory[xtables.ReplaceHeader:], borrowed: true, old: old, limit: old, used: old}
	if used {
		b.used = 0
	}
	return b
}

func (b *block) close() {
	if !b.borrowed {
		_ = unix.Munmap(b.mapping)
	}
}

// read says that a table whose memory was borrowed was read up to an offset.
func (b *block) read(end int) { b.limit = max(b.limit, b.old+end) }

// gap is how far the reading is ahead.
func (b *block) gap() int { return b.limit - b.size }

// take gives the offset of n zero bytes.
func (b *block) take(n int) (int, error) {
	at, err := b.reserve(n)
	if err == nil && b.borrowed && at+n > b.used {
		clear(b.entries[at : at+n])
	}
	return at, err
}

// reserve gives the offset of n bytes that are going to be written.
func (b *block) reserve(n int) (int, error) {
	at := b.size
	if b.borrowed && at+n > b.limit {
		return 0, errNoRoom
	}
	if at+n > len(b.entries) {
		grown, err := unix.Mremap(b.mapping, 2*len(b.mapping)+n, unix.MREMAP_MAYMOVE)
		if err != nil {
			return 0, fmt.Errorf("room for a table of more than %d bytes: %w", len(b.mapping), err)
		}
		b.mapping, b.entries = grown, grown[xtables.ReplaceHeader:]
	}
	b.size += n
	return at, nil
}

// whole is what the socket option takes.
func (b *block) whole() []byte { return b.mapping[:xtables.ReplaceHeader+b.size] }

func (b *block) put8(at int, v byte)    { b.entries[at] = v }
func (b *block) put16(at int, v uint16) { binary.NativeEndian.PutUint16(b.entries[at:], v) }
func (b *block) put32(at int, v uint32) { binary.NativeEndian.PutUint32(b.entries[at:], v) }

// putPort writes a number in the network's order.
func (b *block) putPort(at int, v uint16) { binary.BigEndian.PutUint16(b.entries[at:], v) }

func (b *block) get32(at int) uint32 { return binary.NativeEndian.Uint32(b.entries[at:]) }
