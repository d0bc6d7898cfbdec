package prefix

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// IsName reports whether a chain's name is that of a tree's chain, of any use.
func IsName(chain string) bool { return strings.HasPrefix(chain, Prefix) }

// Level returns the level of a tree's chain by its name: higher than that of every chain it branches to. false: the
// chain belongs to no tree.
func Level(chain string) (int, bool) {
	if !IsName(chain) {
		return 0, false
	}
	level := int(chain[len(chain)-1]) - '0'
	return level, 0 <= level && level < MaxDepth
}

// Use returns the letter of a chain's tree by the chain's name; false: the chain belongs to no tree.
func Use(chain string) (byte, bool) {
	rest, ok := strings.CutPrefix(chain, Prefix)
	if !ok || rest == "" {
		return 0, false
	}
	return rest[0], true
}

// name returns the name of a partition's chain: its top and its level, which together are unique. A partition with the
// same top is a part of this one, with a lower level. At most 28 characters, as iptables allows.
//
//	KUBE-TREE-S0A600000-12-3       10.96.0.0/12, level 3
//	KUBE-TREE-S0A600001T1F90-c1    10.96.0.1, TCP, port 8080 and 12 bits of it, level 1
//	KUBE-TREE-NT7530-a2            TCP, port 30000 and 10 bits of it, level 2
//	KUBE-TREE-SJ2NLQ7Q…3           IPv6: a hash of the prefix, level 3
func (t *Tree[V]) name(top *span, level int) string {
	name := Prefix + string(t.opts.Use)
	if t.opts.AddrBits == 128 {
		return name + hash(top) + strconv.Itoa(level)
	}
	if t.opts.AddrBits == 32 {
		name += fmt.Sprintf("%08X", top.path[0]>>32)
		if top.length <= 32 {
			return name + fmt.Sprintf("-%02d-%d", top.length, level)
		}
	}
	protocol, port := top.suffix(t.opts.AddrBits)
	known := top.length - t.opts.AddrBits
	letter := byte('A') // any
	switch {
	case known >= protocolBits:
		letter = "T?US"[protocol]
	case known > 0:
		letter = 'N' // not TCP
	}
	return name + fmt.Sprintf("%c%04X-%s%d", letter, port, strconv.FormatInt(int64(max(known-protocolBits, 0)), 32), level)
}

// hash returns 80 bits of SHA-256 of a prefix, in base32.
func hash(s *span) string {
	var text [32]byte
	for i, word := range s.path {
		binary.BigEndian.PutUint64(text[8*i:], word)
	}
	binary.BigEndian.PutUint64(text[24:], uint64(s.length))
	sum := sha256.Sum256(text[:])
	return base32.StdEncoding.EncodeToString(sum[:10])
}
