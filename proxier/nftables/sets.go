package nftables

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
)

// The names of the table. A full sync fills the one that is not in use, which then takes over.
var tableNames = [2]string{"synclab", "synclab-2"}

// set numbers a set or map of the table. Their number is constant: the kernel finds a set by a linear search, and each
// additional set costs every later transaction.
type set int

// The sets and maps; specs describes their content.
const (
	setFrontends set = iota
	setNodePorts
	setClasses
	setLists
	setAffinity
	setMembers
	setHairpin
	setRefused
	setRefusedNodePorts
	setRefusalsInput
	setRefusalsForward
	setRefusalsOutput
	setHealthChecks
	setEndpoints // the first of the maps of endpoints: see endpointsOf
	sets         = setEndpoints + endpointMaps
)

// short is shortBits, or less in tests.
var short = shortBits

// Lists of up to 1<<shortBits endpoints share one map of endpoints. Longer ones have a map for each doubling.
const (
	shortBits    = 4
	endpointMaps = countBits - shortBits + 1
)

// endpointsOf returns the map with the endpoints of a list of n. The kernel checks each new element against every rule
// that uses its map, and each number of endpoints has such a rule. With one map for all, a cluster with many different
// numbers pays for their product.
func endpointsOf(n int) set {
	return setEndpoints + set(max(0, bits.Len(uint(max(n, 1)-1))-short))
}

// field is a part of a key or a value. In registers and elements it fills whole 32-bit words.
type field int

const (
	addrField  field = iota // 4 or 16 bytes
	protoField              // 1 byte and 3 of 0
	portField               // 2 bytes, network order, and 2 of 0
	wordField               // 4 bytes
	blankField              // 4 bytes of 0 for the nft command: see docs/design/nftables-table.md
	verdict                 // the verdict on the packet: only as the value of a map
)

// Types by which nft prints a field (libnftables, informational for the kernel); a concatenation has 6 bits for each.
const (
	typeIPv4, typeIPv6, typeProto, typePort, typeMark = 7, 8, 12, 13, 19
	typeBits                                          = 6
	typeVerdict                                       = 0xffffff00
)

const blankLen = 4 // bytes of a blankField

// spec is the form of a set.
type spec struct {
	name  string
	key   []field
	value []field // none: a set, else a map
	// dynamic sets are written by rules, and their elements time out.
	dynamic bool
	most    uint32 // elements, where it is dynamic
}

var (
	frontend = []field{addrField, protoField, portField}
	target   = []field{addrField, portField}
	class64  = []field{wordField, wordField}
	// Values that refer to a class or an ID, and to a refusal.
	toClass   = fields([]field{blankField}, class64)
	toRefusal = []field{blankField, wordField}
	// The value of a remembered client. The word has no meaning.
	memory = fields([]field{wordField}, target)
)

func fields(parts ...[]field) (all []field) {
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// specs describes all sets. See docs/design/nftables-table.md for how packets use them.
var specs = [sets]spec{
	setFrontends:        {name: "frontends", key: frontend, value: toClass},
	setNodePorts:        {name: "nodeports", key: []field{protoField, portField}, value: toClass},
	setClasses:          {name: "classes", key: class64, value: []field{verdict}},
	setLists:            {name: "lists", key: fields(frontend, class64), value: toClass},
	setAffinity:         {name: "affinity", key: fields([]field{addrField}, class64), value: memory, dynamic: true, most: 1 << 20},
	setMembers:          {name: "members", key: fields(class64, []field{wordField}, target)},
	setHairpin:          {name: "hairpin", key: []field{addrField, addrField}},
	setRefused:          {name: "refused", key: frontend, value: toRefusal},
	setRefusedNodePorts: {name: "refused-nodeports", key: []field{protoField, portField}, value: toRefusal},
	setRefusalsInput:    {name: "refusals-input", key: []field{wordField}, value: []field{verdict}},
	setRefusalsForward:  {name: "refusals-forward", key: []field{wordField}, value: []field{verdict}},
	setRefusalsOutput:   {name: "refusals-output", key: []field{wordField}, value: []field{verdict}},
	setHealthChecks:     {name: "health-checks", key: []field{portField}},
}

func init() {
	for i := range endpointMaps {
		s := spec{name: "endpoints", key: fields(class64, []field{wordField}), value: target}
		if i > 0 {
			s.name = fmt.Sprintf("endpoints-%d", 1<<(shortBits+i-1)+1) // of the shortest list
		}
		specs[setEndpoints+set(i)] = s
	}
}

// EndpointMaps returns the names of the maps of endpoints.
func EndpointMaps() (names []string) {
	for s := setEndpoints; s < sets; s++ {
		names = append(names, s.String())
	}
	return names
}

// String returns the set's name in the kernel.
func (s set) String() string { return specs[s].name }

func (s set) verdicts() bool { return len(specs[s].value) == 1 && specs[s].value[0] == verdict }

// addrLen returns the length of an address in bytes.
func addrLen(family corev1.IPFamily) int {
	if family == corev1.IPv6Protocol {
		return 16
	}
	return 4
}

// length returns the length of some fields in bytes. A verdict has none. A single port is not padded: nft would take
// the whole word for its number.
func length(fields []field, family corev1.IPFamily) int {
	if len(fields) == 1 && fields[0] == portField {
		return 2
	}
	n := 0
	for _, f := range fields {
		switch f {
		case addrField:
			n += addrLen(family)
		case verdict:
		default:
			n += 4
		}
	}
	return n
}

func (s set) keyLen(family corev1.IPFamily) int   { return length(specs[s].key, family) }
func (s set) valueLen(family corev1.IPFamily) int { return length(specs[s].value, family) }

// typeOf returns the type by which nft prints some fields.
func typeOf(fields []field, family corev1.IPFamily) uint32 {
	var t uint32
	for _, f := range fields {
		t <<= typeBits
		switch f {
		case addrField:
			if family == corev1.IPv6Protocol {
				t |= typeIPv6
			} else {
				t |= typeIPv4
			}
		case protoField:
			t |= typeProto
		case portField:
			t |= typePort
		case wordField, blankField:
			t |= typeMark
		case verdict:
			return typeVerdict
		}
	}
	return t
}

// protocolNumber returns the number of a Service's protocol in IP headers.
func protocolNumber(p corev1.Protocol) (byte, error) {
	switch p {
	case corev1.ProtocolTCP:
		return 6, nil
	case corev1.ProtocolUDP:
		return 17, nil
	case corev1.ProtocolSCTP:
		return 132, nil
	}
	return 0, fmt.Errorf("protocol %q is none of TCP, UDP, SCTP", p)
}

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		b4 := a.As4()
		return append(b, b4[:]...)
	}
	b16 := a.As16()
	return append(b, b16[:]...)
}

func appendProto(b []byte, p byte) []byte { return append(b, p, 0, 0, 0) }

func appendPort(b []byte, p uint16) []byte { return append(b, byte(p>>8), byte(p), 0, 0) }

func appendTarget(b []byte, to netip.AddrPort) []byte {
	return appendPort(appendAddr(b, to.Addr()), to.Port())
}

// appendWord appends a number as numgen leaves it in a register: in the machine's byte order.
func appendWord(b []byte, w uint32) []byte { return binary.NativeEndian.AppendUint32(b, w) }

// appendTo64 appends a value that refers to a class or an ID.
func appendTo64(b []byte, v uint64) []byte { return append64(append(b, make([]byte, blankLen)...), v) }

// to64 reads such a value.
func to64(value []byte) uint64 { return binary.BigEndian.Uint64(value[blankLen:]) }

// append64 appends a class or an ID.
func append64(b []byte, v uint64) []byte { return binary.BigEndian.AppendUint64(b, v) }
