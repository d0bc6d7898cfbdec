package direct

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/xtables"
)

// block is a table in the making: memory that Go does not manage, zero where nothing was written. Its first
// xtables.ReplaceHeader bytes are left for the socket option; offsets count from behind them, as the kernel's do.
type block struct {
	mapping []byte
	entries []byte // of the mapping, all that there is room for
	size    int    // of entries, bytes that are taken
}

// newBlock reserves room; none of it costs memory before it is written.
func newBlock(room int) (*block, error) {
	const least = 1 << 20
	mapping, err := unix.Mmap(-1, 0, xtables.ReplaceHeader+max(room, least),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("room for a table of %d bytes: %w", room, err)
	}
	_ = unix.Madvise(mapping, unix.MADV_HUGEPAGE) // some 25,000 page faults less for a large table
	return &block{mapping: mapping, entries: mapping[xtables.ReplaceHeader:]}, nil
}

func (b *block) close() { _ = unix.Munmap(b.mapping) }

// take gives the offset of n zero bytes.
func (b *block) take(n int) (int, error) {
	at := b.size
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
