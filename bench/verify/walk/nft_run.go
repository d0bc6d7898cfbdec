package walk

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"

	"synclab/proxier/iptables/rule"
)

func (rules nftRules) run(w *Walker, s *state) (result, error) {
	for int(s.at.rule) < len(rules) {
		ops := rules[s.at.rule]
		if s.at.part == 0 {
			s.cross()
		}
		verdict := nftVerdict{}
		for int(s.at.part) < len(ops) && verdict.kind == verdictNone {
			op := &ops[s.at.part]
			s.at.part++
			verdict = op.run(w, s, op)
		}
		if w.tracing && verdict.kind != verdictBreak {
			w.note(s, position{chain: s.at.chain, rule: s.at.rule})
		}
		s.at.rule, s.at.part = s.at.rule+1, 0
		switch verdict.kind {
		case verdictJump, verdictGoto:
			return entered, w.call(s, verdict.chain, verdict.kind == verdictJump)
		case verdictReturn:
			return returned, nil
		case verdictAccept:
			return accepted, nil
		case verdictDrop:
			return dropped, nil
		case verdictReject:
			return rejected, nil
		}
	}
	return ended, nil
}

// verdictReject is no verdict of the kernel: the kernel answers the packet and drops it.
const verdictReject = 3

// broken ends the rule: it does not match.
var broken = nftVerdict{kind: verdictBreak}

func goOn(matches bool) nftVerdict {
	if matches {
		return nftVerdict{}
	}
	return broken
}

func runVerdict(_ *Walker, _ *state, op *nftOp) nftVerdict { return op.verdict }

func runImmediate(_ *Walker, s *state, op *nftOp) nftVerdict {
	s.load(op.to, op.data)
	return nftVerdict{}
}

// load fills a register and sets the rest of the last word to zero, as the kernel does.
func (s *state) load(to int, data []byte) {
	n := copy(s.registers[to:], data)
	for ; n%registerWordSize != 0; n++ {
		s.registers[to+n] = 0
	}
}

func runTransport(_ *Walker, s *state, op *nftOp) nftVerdict {
	var header [4]byte
	binary.BigEndian.PutUint16(header[:], s.sport)
	binary.BigEndian.PutUint16(header[2:], s.dport)
	s.load(op.to, header[op.offset:int(op.offset)+op.size])
	return nftVerdict{}
}

func runNetwork(w *Walker, s *state, op *nftOp) nftVerdict {
	s.putHeader(&w.header, w.rules.ipv4)
	s.load(op.to, w.header[op.offset:int(op.offset)+op.size])
	return nftVerdict{}
}

// putHeader writes the parts of the IP header that a packet has here (see inNetworkHeader) and returns the header's
// size.
func (s *state) putHeader(header *[40]byte, ipv4 bool) (size int) {
	if ipv4 {
		header[9] = byte(s.protocol)
		putAddress(header[12:16], s.src)
		putAddress(header[16:20], s.dst)
		return 20
	}
	header[6] = byte(s.protocol)
	putAddress(header[8:24], s.src)
	putAddress(header[24:40], s.dst)
	return 40
}

// putAddress writes an address of 4 or 16 bytes.
func putAddress(to []byte, a address) {
	if len(to) == 4 {
		binary.BigEndian.PutUint32(to, uint32(a[1]))
		return
	}
	binary.BigEndian.PutUint64(to, a[0])
	binary.BigEndian.PutUint64(to[8:], a[1])
}

func getAddress(from []byte) address {
	if len(from) == 4 {
		return address{0, uint64(binary.BigEndian.Uint32(from))}
	}
	return address{binary.BigEndian.Uint64(from), binary.BigEndian.Uint64(from[8:])}
}

func runMark(_ *Walker, s *state, op *nftOp) nftVerdict {
	binary.NativeEndian.PutUint32(s.registers[op.to:], s.mark)
	return nftVerdict{}
}

func runSetMark(_ *Walker, s *state, op *nftOp) nftVerdict {
	s.mark = binary.NativeEndian.Uint32(s.registers[op.from:])
	return nftVerdict{}
}

func runProtocol(_ *Walker, s *state, op *nftOp) nftVerdict {
	s.load(op.to, []byte{byte(s.protocol)})
	return nftVerdict{}
}

func runInput(_ *Walker, s *state, op *nftOp) nftVerdict {
	var name [unix.IFNAMSIZ]byte
	copy(name[:], s.in)
	s.load(op.to, name[:])
	return nftVerdict{}
}

// ctBits are the conntrack states as nf_tables numbers them (NF_CT_STATE_BIT).
var ctBits = [...]uint32{StateNew: 8, StateEstablished: 2, StateRelated: 4, StateInvalid: 1}

func runCtState(_ *Walker, s *state, op *nftOp) nftVerdict {
	binary.NativeEndian.PutUint32(s.registers[op.to:], ctBits[s.conn])
	return nftVerdict{}
}

// The bits of a flow's status that record a translation by nat (enum ip_conntrack_status).
const (
	statusSrcNAT = 1 << 4
	statusDstNAT = 1 << 5
)

func runCtStatus(_ *Walker, s *state, op *nftOp) nftVerdict {
	if s.conn == StateInvalid {
		return broken // belongs to no flow
	}
	var bits uint32
	if s.stateBits()&rule.StateDNAT != 0 {
		bits |= statusDstNAT
	}
	if s.masquerade {
		bits |= statusSrcNAT
	}
	binary.NativeEndian.PutUint32(s.registers[op.to:], bits)
	return nftVerdict{}
}

func runCtDestination(_ *Walker, s *state, op *nftOp) nftVerdict {
	putAddress(s.registers[op.to:op.to+op.size], s.original)
	return goOn(s.conn != StateInvalid)
}

func runCtDestinationPort(_ *Walker, s *state, op *nftOp) nftVerdict {
	var port [2]byte
	binary.BigEndian.PutUint16(port[:], s.originalPort)
	s.load(op.to, port[:])
	return goOn(s.conn != StateInvalid)
}

func runFibType(w *Walker, s *state, op *nftOp) nftVerdict {
	a := s.dst
	if op.inverted {
		a = s.src
	}
	kind := uint32(unix.RTN_UNICAST)
	if w.world.IsLocal(a.addr(w.rules.ipv4)) {
		kind = unix.RTN_LOCAL
	}
	binary.NativeEndian.PutUint32(s.registers[op.to:], kind)
	return nftVerdict{}
}

func runCmp(_ *Walker, s *state, op *nftOp) nftVerdict {
	c := bytes.Compare(s.registers[op.from:op.from+len(op.data)], op.data)
	switch op.number {
	case unix.NFT_CMP_EQ:
		return goOn(c == 0)
	case unix.NFT_CMP_NEQ:
		return goOn(c != 0)
	case unix.NFT_CMP_LT:
		return goOn(c < 0)
	case unix.NFT_CMP_LTE:
		return goOn(c <= 0)
	case unix.NFT_CMP_GT:
		return goOn(c > 0)
	}
	return goOn(c >= 0)
}

func runRange(_ *Walker, s *state, op *nftOp) nftVerdict {
	value := s.registers[op.from : op.from+len(op.data)]
	inside := bytes.Compare(value, op.data) >= 0 && bytes.Compare(value, op.data2) <= 0
	return goOn(inside != op.inverted)
}

func runBitwise(_ *Walker, s *state, op *nftOp) nftVerdict {
	var result [len(s.registers)]byte
	for i := range op.size {
		result[i] = s.registers[op.from+i]&op.data[i] ^ op.data2[i]
	}
	s.load(op.to, result[:op.size])
	return nftVerdict{}
}

func runLookup(w *Walker, s *state, op *nftOp) nftVerdict {
	key := s.registers[op.from : op.from+op.set.keySize]
	data, there := op.set.recall(w, s, key)
	if there && op.to >= 0 {
		s.load(op.to, data)
	}
	return goOn(there != op.inverted)
}

// recall looks up a key: elements that packets wrote come before the set's own.
func (set *nftSet) recall(w *Walker, s *state, key []byte) ([]byte, bool) {
	if s.remembered != nothing {
		if m := w.recall(s, set.number, string(key)); m != nil {
			return []byte(m.value), !m.gone
		}
	}
	if e := set.find(key); e != nil {
		return e.data, true
	}
	return nil, false
}

func runLookupVerdict(_ *Walker, s *state, op *nftOp) nftVerdict {
	e := op.set.find(s.registers[op.from : op.from+op.set.keySize])
	if e == nil {
		return broken
	}
	return e.target
}

func runDynset(w *Walker, s *state, op *nftOp) nftVerdict {
	key := s.registers[op.from : op.from+op.set.keySize]
	m := memory{list: op.set.number, key: string(key), value: string(s.registers[op.to : op.to+op.size]), gone: op.inverted}
	if op.number == unix.NFT_DYNSET_OP_ADD {
		if _, there := op.set.recall(w, s, key); there {
			return nftVerdict{} // the old one stays
		}
	}
	w.remember(s, m)
	return nftVerdict{}
}

// runNumgen adds a path for each number.
func runNumgen(w *Walker, s *state, op *nftOp) nftVerdict {
	s.probability /= float64(op.number)
	for n := op.number - 1; n > 0; n-- {
		other := w.part(s, s.probability)
		binary.NativeEndian.PutUint32(other.registers[op.to:], n+op.offset)
	}
	binary.NativeEndian.PutUint32(s.registers[op.to:], op.offset)
	return nftVerdict{}
}

func runDnat(w *Walker, s *state, op *nftOp) nftVerdict {
	port := s.dport
	if op.to >= 0 {
		port = binary.BigEndian.Uint16(s.registers[op.to:])
	}
	s.translate(getAddress(s.registers[op.from:op.from+op.size]), port)
	return nftVerdict{kind: verdictAccept}
}

func runMasq(w *Walker, s *state, _ *nftOp) nftVerdict {
	w.hide(s)
	return nftVerdict{kind: verdictAccept}
}

func runReject(*Walker, *state, *nftOp) nftVerdict { return nftVerdict{kind: verdictReject} }
