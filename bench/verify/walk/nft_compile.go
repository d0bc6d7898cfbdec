package walk

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// nftRules is a chain of nf_tables; each rule is a program of expressions.
type nftRules [][]nftOp

// nftOp is one expression, compiled. Registers are offsets into state.registers.
type nftOp struct {
	run func(w *Walker, s *state, op *nftOp) nftVerdict

	from, to    int // registers
	size        int // bytes
	data, data2 []byte
	number      uint32
	offset      uint32
	set         *nftSet
	inverted    bool
	verdict     nftVerdict
}

var errNotKnown = errors.New("not known")

// compileRule compiles the expressions of a rule.
func compileRule(expressions attributes, t *nftTable, ipv4 bool) ([]nftOp, error) {
	var ops []nftOp
	err := expressions.each(func(_ uint16, expression attributes) error {
		f, err := expression.table()
		if err != nil {
			return err
		}
		name := f.text(unix.NFTA_EXPR_NAME)
		body, err := f[unix.NFTA_EXPR_DATA].table()
		if err == nil {
			ops, err = compileExpression(ops, name, body, t, ipv4)
		}
		if err != nil {
			return fmt.Errorf("expression %s: %w", name, err)
		}
		return nil
	})
	return ops, err
}

func compileExpression(ops []nftOp, name string, f fields, t *nftTable, ipv4 bool) ([]nftOp, error) {
	var op nftOp
	var err error
	switch name {
	case "counter", "last", "log":
		return ops, nil
	case "objref":
		if f.number(unix.NFTA_OBJREF_IMM_TYPE) != unix.NFT_OBJECT_COUNTER {
			return nil, fmt.Errorf("objects that are no counters are %w", errNotKnown)
		}
		return ops, nil
	case "immediate":
		op, err = compileImmediate(f, t)
	case "payload":
		op, err = compilePayload(f, ipv4)
	case "meta":
		op, err = compileMeta(f, ipv4)
	case "ct":
		op, err = compileCt(f, ipv4)
	case "fib":
		op, err = compileFib(f)
	case "cmp":
		op, err = compileCmp(f)
	case "range":
		op, err = compileRange(f)
	case "bitwise":
		op, err = compileBitwise(f)
	case "lookup":
		op, err = compileLookup(f, t)
	case "dynset":
		op, err = compileDynset(f, t)
	case "numgen":
		op, err = compileNumgen(f)
	case "nat":
		op, err = compileNat(f, ipv4)
	case "masq":
		op = nftOp{run: runMasq}
		err = f.only(unix.NFTA_MASQ_FLAGS)
	case "reject":
		op = nftOp{run: runReject}
	default:
		err = errNotKnown
	}
	return append(ops, op), err
}

// register returns the offset of a register: the four of 16 bytes are 1 to 4, the sixteen of 4 bytes begin at 8.
func register(f fields, kind uint16, size int) (int, error) {
	number := int(f.number(kind))
	var at int
	switch {
	case number >= unix.NFT_REG_1 && number <= unix.NFT_REG_4:
		at = (number - unix.NFT_REG_1) * 16
	case number >= unix.NFT_REG32_00 && number <= unix.NFT_REG32_15:
		at = (number - unix.NFT_REG32_00) * registerWordSize
	default:
		return 0, fmt.Errorf("register %d is %w", number, errNotKnown)
	}
	if at+size > len(state{}.registers) || size < 0 {
		return 0, fmt.Errorf("%d bytes in register %d", size, number)
	}
	return at, nil
}

// value returns the data of an expression.
func (f fields) value(kind uint16) ([]byte, error) {
	inside, err := f[kind].table()
	return append([]byte(nil), inside[unix.NFTA_DATA_VALUE]...), err
}

func compileImmediate(f fields, t *nftTable) (op nftOp, err error) {
	inside, err := f[unix.NFTA_IMMEDIATE_DATA].table()
	if err != nil {
		return op, err
	}
	if f.number(unix.NFTA_IMMEDIATE_DREG) == unix.NFT_REG_VERDICT {
		op.run = runVerdict
		named, err := readVerdict(inside[unix.NFTA_DATA_VERDICT])
		if err == nil {
			op.verdict, err = t.resolve(named)
		}
		return op, err
	}
	op.run, op.data = runImmediate, append([]byte(nil), inside[unix.NFTA_DATA_VALUE]...)
	op.to, err = register(f, unix.NFTA_IMMEDIATE_DREG, len(op.data))
	return op, err
}

// The parts of the headers that a packet has here, from one offset up to another: the protocol, addresses, ports.
var (
	network4  = [][2]int{{9, 10}, {12, 20}}
	network6  = [][2]int{{6, 7}, {8, 40}}
	transport = [][2]int{{0, 4}}
)

// inNetworkHeader reports whether a packet has so many bytes of its IP header here.
func inNetworkHeader(from, size int, ipv4 bool) bool {
	parts := network6
	if ipv4 {
		parts = network4
	}
	return within(parts, from, size)
}

func within(parts [][2]int, from, size int) bool {
	return slices.ContainsFunc(parts, func(part [2]int) bool { return part[0] <= from && from+size <= part[1] })
}

func compilePayload(f fields, ipv4 bool) (op nftOp, err error) {
	from, size := int(f.number(unix.NFTA_PAYLOAD_OFFSET)), int(f.number(unix.NFTA_PAYLOAD_LEN))
	op.offset, op.size = uint32(from), size
	known := false
	switch base := f.number(unix.NFTA_PAYLOAD_BASE); base {
	case unix.NFT_PAYLOAD_TRANSPORT_HEADER:
		op.run, known = runTransport, within(transport, from, size)
	case unix.NFT_PAYLOAD_NETWORK_HEADER:
		op.run, known = runNetwork, inNetworkHeader(from, size, ipv4)
	default:
		return op, fmt.Errorf("base %d is %w", base, errNotKnown)
	}
	if _, writes := f[unix.NFTA_PAYLOAD_SREG]; writes || !known {
		return op, fmt.Errorf("%d bytes at %d are %w, or written", size, from, errNotKnown)
	}
	op.to, err = register(f, unix.NFTA_PAYLOAD_DREG, op.size)
	return op, err
}

func compileMeta(f fields, ipv4 bool) (op nftOp, err error) {
	key := f.number(unix.NFTA_META_KEY)
	if _, sets := f[unix.NFTA_META_SREG]; sets {
		if key != unix.NFT_META_MARK {
			return op, fmt.Errorf("setting key %d is %w", key, errNotKnown)
		}
		op.run = runSetMark
		op.from, err = register(f, unix.NFTA_META_SREG, 4)
		return op, err
	}
	op.size = 4
	switch key {
	case unix.NFT_META_MARK:
		op.run = runMark
	case unix.NFT_META_L4PROTO:
		op.run = runProtocol
	case unix.NFT_META_NFPROTO:
		op.run, op.data = runImmediate, []byte{unix.NFPROTO_IPV6, 0, 0, 0}
		if ipv4 {
			op.data[0] = unix.NFPROTO_IPV4
		}
	case unix.NFT_META_IIFNAME:
		op.run, op.size = runInput, unix.IFNAMSIZ
	default:
		return op, fmt.Errorf("key %d is %w", key, errNotKnown)
	}
	op.to, err = register(f, unix.NFTA_META_DREG, op.size)
	return op, err
}

func compileCt(f fields, ipv4 bool) (op nftOp, err error) {
	op.size = 4
	_, directed := f[unix.NFTA_CT_DIRECTION]
	const original = 0 // IP_CT_DIR_ORIGINAL
	if _, sets := f[unix.NFTA_CT_SREG]; sets || directed && (len(f[unix.NFTA_CT_DIRECTION]) != 1 || f[unix.NFTA_CT_DIRECTION][0] != original) {
		return op, fmt.Errorf("setting, or the other direction, is %w", errNotKnown)
	}
	switch key := f.number(unix.NFTA_CT_KEY); {
	case key == unix.NFT_CT_STATE:
		op.run = runCtState
	case key == unix.NFT_CT_STATUS:
		op.run = runCtStatus
	case (key == unix.NFT_CT_DST || key == unix.NFT_CT_DST_IP || key == unix.NFT_CT_DST_IP6) && directed:
		op.run, op.size = runCtDestination, 16
		if ipv4 {
			op.size = 4
		}
	case key == unix.NFT_CT_PROTO_DST && directed:
		op.run = runCtDestinationPort
	case key == unix.NFT_CT_PROTOCOL:
		op.run = runProtocol
	default:
		return op, fmt.Errorf("key %d is %w", key, errNotKnown)
	}
	op.to, err = register(f, unix.NFTA_CT_DREG, op.size)
	return op, err
}

func compileFib(f fields) (op nftOp, err error) {
	op.run = runFibType
	if result := f.number(unix.NFTA_FIB_RESULT); result != unix.NFT_FIB_RESULT_ADDRTYPE {
		return op, fmt.Errorf("result %d is %w", result, errNotKnown)
	}
	switch flags := f.number(unix.NFTA_FIB_FLAGS); flags {
	case unix.NFTA_FIB_F_SADDR:
		op.inverted = true // true means the source address here
	case unix.NFTA_FIB_F_DADDR:
	default:
		return op, fmt.Errorf("flags %#x are %w", flags, errNotKnown)
	}
	op.to, err = register(f, unix.NFTA_FIB_DREG, 4)
	return op, err
}

func compileCmp(f fields) (op nftOp, err error) {
	op.run, op.number = runCmp, f.number(unix.NFTA_CMP_OP)
	if op.number > unix.NFT_CMP_GTE {
		return op, fmt.Errorf("operator %d is %w", op.number, errNotKnown)
	}
	if op.data, err = f.value(unix.NFTA_CMP_DATA); err != nil {
		return op, err
	}
	op.from, err = register(f, unix.NFTA_CMP_SREG, len(op.data))
	return op, err
}

func compileRange(f fields) (op nftOp, err error) {
	op.run, op.inverted = runRange, f.number(unix.NFTA_RANGE_OP) == unix.NFT_RANGE_NEQ
	if op.data, err = f.value(unix.NFTA_RANGE_FROM_DATA); err != nil {
		return op, err
	}
	if op.data2, err = f.value(unix.NFTA_RANGE_TO_DATA); err != nil {
		return op, err
	}
	if len(op.data) != len(op.data2) {
		return op, errors.New("the ends of the range differ in size")
	}
	op.from, err = register(f, unix.NFTA_RANGE_SREG, len(op.data))
	return op, err
}

func compileBitwise(f fields) (op nftOp, err error) {
	const operation = 6 // NFTA_BITWISE_OP; 0, the default: and, then xor
	if o := f.number(operation); o != 0 {
		return op, fmt.Errorf("operation %d is %w", o, errNotKnown)
	}
	op.run, op.size = runBitwise, int(f.number(unix.NFTA_BITWISE_LEN))
	if op.data, err = f.value(unix.NFTA_BITWISE_MASK); err != nil {
		return op, err
	}
	if op.data2, err = f.value(unix.NFTA_BITWISE_XOR); err != nil {
		return op, err
	}
	if len(op.data) != op.size || len(op.data2) != op.size {
		return op, errors.New("mask or xor value of the wrong size")
	}
	if op.from, err = register(f, unix.NFTA_BITWISE_SREG, op.size); err != nil {
		return op, err
	}
	op.to, err = register(f, unix.NFTA_BITWISE_DREG, op.size)
	return op, err
}

func compileLookup(f fields, t *nftTable) (op nftOp, err error) {
	op.run = runLookup
	op.inverted = f.number(unix.NFTA_LOOKUP_FLAGS)&unix.NFT_LOOKUP_F_INV != 0
	if op.set, err = t.setNamed(f.text(unix.NFTA_LOOKUP_SET)); err != nil {
		return op, err
	}
	if op.from, err = register(f, unix.NFTA_LOOKUP_SREG, op.set.keySize); err != nil {
		return op, err
	}
	switch _, takes := f[unix.NFTA_LOOKUP_DREG]; {
	case !takes:
		op.to = -1
	case op.set.verdicts:
		op.run = runLookupVerdict
	default:
		op.to, err = register(f, unix.NFTA_LOOKUP_DREG, op.set.valueSize)
	}
	return op, err
}

func compileDynset(f fields, t *nftTable) (op nftOp, err error) {
	op.run = runDynset
	const deletes = 2 // NFT_DYNSET_OP_DELETE
	op.number = f.number(unix.NFTA_DYNSET_OP)
	op.inverted = op.number == deletes
	if op.number > deletes || f.number(unix.NFTA_DYNSET_FLAGS)&unix.NFT_DYNSET_F_INV != 0 {
		return op, fmt.Errorf("operation %d, or its inversion, is %w", op.number, errNotKnown)
	}
	if op.set, err = t.setNamed(f.text(unix.NFTA_DYNSET_SET_NAME)); err != nil {
		return op, err
	}
	if op.from, err = register(f, unix.NFTA_DYNSET_SREG_KEY, op.set.keySize); err != nil {
		return op, err
	}
	if op.set.valueSize > 0 && !op.inverted {
		op.size = op.set.valueSize
		op.to, err = register(f, unix.NFTA_DYNSET_SREG_DATA, op.size)
	}
	return op, err
}

func compileNumgen(f fields) (op nftOp, err error) {
	// For a packet at any time, an incremental generator is as good as a random one.
	op.run, op.number, op.offset = runNumgen, f.number(unix.NFTA_NG_MODULUS), f.number(unix.NFTA_NG_OFFSET)
	if op.number == 0 {
		return op, errors.New("modulus 0")
	}
	op.to, err = register(f, unix.NFTA_NG_DREG, 4)
	return op, err
}

func compileNat(f fields, ipv4 bool) (op nftOp, err error) {
	op.run, op.size = runDnat, 16
	if ipv4 {
		op.size = 4
	}
	if kind := f.number(unix.NFTA_NAT_TYPE); kind != unix.NFT_NAT_DNAT {
		return op, fmt.Errorf("type %d is %w", kind, errNotKnown)
	}
	// nft writes an address or a port as a range of one.
	for _, ends := range [][2]uint16{{unix.NFTA_NAT_REG_ADDR_MIN, unix.NFTA_NAT_REG_ADDR_MAX}, {unix.NFTA_NAT_REG_PROTO_MIN, unix.NFTA_NAT_REG_PROTO_MAX}} {
		if _, there := f[ends[1]]; there && f.number(ends[0]) != f.number(ends[1]) {
			return op, fmt.Errorf("ranges are %w", errNotKnown)
		}
	}
	if op.from, err = register(f, unix.NFTA_NAT_REG_ADDR_MIN, op.size); err != nil {
		return op, err
	}
	op.to = -1
	if _, there := f[unix.NFTA_NAT_REG_PROTO_MIN]; there {
		op.to, err = register(f, unix.NFTA_NAT_REG_PROTO_MIN, 2)
	}
	return op, err
}
