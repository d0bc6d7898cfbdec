package nftables

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/kernel/attr"
)

// Sizes of netlink. Lengths of messages and attributes are in the machine's byte order, the content of attributes is in
// the network's.
const (
	headerSize = unix.NLMSG_HDRLEN
	nfgenSize  = 4
	// An attribute's length has 16 bits, so a long list of elements takes several messages.
	mostListBytes = 1<<16 - 1 - 256
)

// Constants that x/sys does not name.
const (
	setDescSize    = 1  // NFTA_SET_DESC_SIZE
	destroySetElem = 30 // NFT_MSG_DESTROYSETELEM (Linux 6.3)
)

// encoder encodes each transaction as a batch of netlink messages and passes it to send. It reuses its buffer: a sync
// allocates nothing for each element.
type encoder struct {
	family corev1.IPFamily
	proto  byte
	table  string
	buf    []byte
	seq    uint32
	first  uint32 // of the batch
	last   int    // where the last message begins
	// limit, when greater than 0, is the size in bytes at which a transaction is split: only for tables that no packet
	// reaches.
	limit int
	send  func(batch []byte, first, last uint32) error
	err   error // sticky
	// written counts what was written; elements count as rules.
	written backend.Count
}

func newEncoder(family corev1.IPFamily, table string, send func(batch []byte, first, last uint32) error) *encoder {
	proto := byte(unix.NFPROTO_IPV4)
	if family == corev1.IPv6Protocol {
		proto = unix.NFPROTO_IPV6
	}
	return &encoder{family: family, proto: proto, table: table, send: send}
}

// reset discards what was begun or failed, for a new sync.
func (e *encoder) reset(send func(batch []byte, first, last uint32) error) {
	e.buf, e.err, e.limit, e.send, e.written = e.buf[:0], nil, 0, send, backend.Count{}
}

// begin begins a message, and a batch if there is none. It returns where the message begins, for end.
func (e *encoder) begin(kind uint16, flags uint16) int {
	if e.limit > 0 && len(e.buf) >= e.limit {
		_ = e.commit() // sticky
	}
	if len(e.buf) == 0 {
		e.first = e.seq + 1
		e.end(e.header(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
	}
	e.last = e.header(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_REQUEST|flags, e.proto, 0)
	return e.last
}

func (e *encoder) header(kind, flags uint16, proto byte, resource uint16) int {
	start := len(e.buf)
	e.seq++
	e.buf = binary.NativeEndian.AppendUint32(e.buf, 0) // length: see end
	e.buf = binary.NativeEndian.AppendUint16(e.buf, kind)
	e.buf = binary.NativeEndian.AppendUint16(e.buf, flags)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, e.seq)
	e.buf = binary.NativeEndian.AppendUint32(e.buf, 0) // from: the kernel fills it in
	e.buf = append(e.buf, proto, unix.NFNETLINK_V0, byte(resource>>8), byte(resource))
	return start
}

func (e *encoder) end(start int) {
	binary.NativeEndian.PutUint32(e.buf[start:], uint32(len(e.buf)-start))
}

// open begins an attribute that contains others; close ends it.
func (e *encoder) open(kind uint16) int {
	start := len(e.buf)
	e.buf = attr.Open(e.buf, kind)
	return start
}

func (e *encoder) close(start int) { attr.Close(e.buf, start) }

func (e *encoder) bytes(kind uint16, value []byte) { e.buf = attr.Append(e.buf, kind, value) }
func (e *encoder) text(kind uint16, value string)  { e.buf = attr.AppendText(e.buf, kind, value) }
func (e *encoder) u32(kind uint16, value uint32)   { e.buf = attr.AppendUint32(e.buf, kind, value) }
func (e *encoder) u64(kind uint16, value uint64)   { e.buf = attr.AppendUint64(e.buf, kind, value) }

// value writes the key or the value of an element.
func (e *encoder) value(kind uint16, data []byte) {
	start := e.open(kind)
	e.bytes(unix.NFTA_DATA_VALUE, data)
	e.close(start)
}

func (e *encoder) createTable() {
	start := e.begin(unix.NFT_MSG_NEWTABLE, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	e.text(unix.NFTA_TABLE_NAME, e.table)
	e.end(start)
}

func (e *encoder) deleteTable() {
	start := e.begin(unix.NFT_MSG_DELTABLE, 0)
	e.text(unix.NFTA_TABLE_NAME, e.table)
	e.end(start)
}

func (e *encoder) createSet(s set) {
	sp := &specs[s]
	start := e.begin(unix.NFT_MSG_NEWSET, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	e.text(unix.NFTA_SET_TABLE, e.table)
	e.text(unix.NFTA_SET_NAME, sp.name)
	flags := uint32(0)
	if len(sp.value) > 0 {
		flags |= unix.NFT_SET_MAP
	}
	if sp.dynamic {
		flags |= unix.NFT_SET_EVAL | unix.NFT_SET_TIMEOUT
	}
	e.u32(unix.NFTA_SET_FLAGS, flags)
	e.u32(unix.NFTA_SET_KEY_TYPE, typeOf(sp.key, e.family))
	e.u32(unix.NFTA_SET_KEY_LEN, uint32(s.keyLen(e.family)))
	if len(sp.value) > 0 {
		e.u32(unix.NFTA_SET_DATA_TYPE, typeOf(sp.value, e.family))
		if !s.verdicts() {
			e.u32(unix.NFTA_SET_DATA_LEN, uint32(s.valueLen(e.family)))
		}
	}
	// No size for the others: without one, the kernel chooses a hash table that grows; with one, a table that never
	// does.
	if sp.dynamic {
		desc := e.open(unix.NFTA_SET_DESC)
		e.u32(setDescSize, sp.most)
		e.close(desc)
	}
	e.u32(unix.NFTA_SET_ID, uint32(s)+1)
	e.end(start)
}

func (e *encoder) createChain(name string, h *hook) {
	e.written.Chains++
	start := e.begin(unix.NFT_MSG_NEWCHAIN, unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	e.text(unix.NFTA_CHAIN_TABLE, e.table)
	e.text(unix.NFTA_CHAIN_NAME, name)
	if h != nil {
		in := e.open(unix.NFTA_CHAIN_HOOK)
		e.u32(unix.NFTA_HOOK_HOOKNUM, h.number)
		e.u32(unix.NFTA_HOOK_PRIORITY, uint32(h.priority))
		e.close(in)
		e.text(unix.NFTA_CHAIN_TYPE, h.typ)
		e.u32(unix.NFTA_CHAIN_POLICY, 1) // NF_ACCEPT
	}
	e.end(start)
}

func (e *encoder) deleteChain(name string) {
	start := e.begin(unix.NFT_MSG_DELCHAIN, 0)
	e.text(unix.NFTA_CHAIN_TABLE, e.table)
	e.text(unix.NFTA_CHAIN_NAME, name)
	e.end(start)
}

func (e *encoder) flush(chain string) {
	start := e.begin(unix.NFT_MSG_DELRULE, 0)
	e.text(unix.NFTA_RULE_TABLE, e.table)
	e.text(unix.NFTA_RULE_CHAIN, chain)
	e.end(start)
}

func (e *encoder) rule(chain string, exprs []expr.Any) {
	e.written.Rules++
	start := e.begin(unix.NFT_MSG_NEWRULE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
	e.text(unix.NFTA_RULE_TABLE, e.table)
	e.text(unix.NFTA_RULE_CHAIN, chain)
	list := e.open(unix.NFTA_RULE_EXPRESSIONS)
	for _, x := range exprs {
		encoded, err := expr.Marshal(e.proto, x)
		if err != nil {
			e.fail(fmt.Errorf("chain %s: expression %T: %w", chain, x, err))
			break
		}
		in := e.open(unix.NFTA_LIST_ELEM)
		e.buf = append(e.buf, encoded...)
		e.close(in)
	}
	e.close(list)
	e.end(start)
}

func (e *encoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *encoder) add(s set, elements []byte) {
	key, value := s.keyLen(e.family), s.valueLen(e.family)
	e.written.Rules += len(elements) / (key + value)
	e.elements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s, elements, key, value)
}

func (e *encoder) remove(s set, keys []byte) {
	e.elements(unix.NFT_MSG_DELSETELEM, 0, s, keys, s.keyLen(e.family), 0)
}

// destroy deletes elements that may not exist.
func (e *encoder) destroy(s set, keys []byte) {
	e.elements(destroySetElem, 0, s, keys, s.keyLen(e.family), 0)
}

// elements writes elements in as many messages as needed: an attribute has a largest size.
func (e *encoder) elements(kind, flags uint16, s set, b []byte, key, value int) {
	for len(b) > 0 {
		start, list := e.openElements(kind, flags, s)
		for first := true; len(b) > 0 && (first || len(e.buf)-list < mostListBytes && (e.limit == 0 || len(e.buf) < e.limit)); first = false {
			in := e.open(unix.NFTA_LIST_ELEM)
			e.value(unix.NFTA_SET_ELEM_KEY, b[:key])
			if value > 0 {
				e.value(unix.NFTA_SET_ELEM_DATA, b[key:key+value])
			}
			e.close(in)
			b = b[key+value:]
		}
		e.close(list)
		e.end(start)
	}
}

func (e *encoder) openElements(kind, flags uint16, s set) (message, list int) {
	message = e.begin(kind, flags)
	e.text(unix.NFTA_SET_ELEM_LIST_TABLE, e.table)
	e.text(unix.NFTA_SET_ELEM_LIST_SET, s.String())
	return message, e.open(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
}

// addTimed adds an element that expires: timeout is its lifetime, left the time left.
func (e *encoder) addTimed(s set, key, value []byte, timeout, left time.Duration) {
	start, list := e.openElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s)
	in := e.open(unix.NFTA_LIST_ELEM)
	e.value(unix.NFTA_SET_ELEM_KEY, key)
	e.value(unix.NFTA_SET_ELEM_DATA, value)
	e.u64(unix.NFTA_SET_ELEM_TIMEOUT, uint64(timeout.Milliseconds()))
	e.u64(unix.NFTA_SET_ELEM_EXPIRATION, uint64(left.Milliseconds()))
	e.close(in)
	e.close(list)
	e.end(start)
}

func (e *encoder) addVerdict(s set, key []byte, v expr.Verdict) {
	e.written.Rules++
	start, list := e.openElements(unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, s)
	in := e.open(unix.NFTA_LIST_ELEM)
	e.value(unix.NFTA_SET_ELEM_KEY, key)
	d := e.open(unix.NFTA_SET_ELEM_DATA)
	code := e.open(unix.NFTA_DATA_VERDICT)
	e.u32(unix.NFTA_VERDICT_CODE, uint32(v.Kind))
	if v.Chain != "" {
		e.text(unix.NFTA_VERDICT_CHAIN, v.Chain)
	}
	e.close(code)
	e.close(d)
	e.close(in)
	e.close(list)
	e.end(start)
}

// commit ends the batch and sends it.
func (e *encoder) commit() error {
	if e.err == nil && len(e.buf) > 0 {
		// Only the last message is acknowledged, unless one fails.
		flags := e.buf[e.last+6:]
		binary.NativeEndian.PutUint16(flags, binary.NativeEndian.Uint16(flags)|unix.NLM_F_ACK)
		last := e.seq
		e.end(e.header(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, unix.AF_UNSPEC, unix.NFNL_SUBSYS_NFTABLES))
		if err := e.send(e.buf, e.first, last); err != nil {
			e.fail(err)
		}
	}
	e.buf = e.buf[:0]
	return e.err
}
