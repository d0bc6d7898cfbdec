package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"synclab/proxier/backend"
	"synclab/proxier/kernel/attr"
)

// Sizes of the socket's buffers. The kernel copies a batch into one buffer before it reads it, and refuses a batch that
// is larger than the send buffer (EMSGSIZE). Larger batches cost more at once and no less in all.
const (
	wantedBuffer = 4 << 20
	batchBytes   = 1 << 20
	reserve      = 32 // netlink_sendmsg keeps this much of the buffer
)

// errUnanswered: the kernel did not answer a batch. It may have committed the batch.
var errUnanswered = errors.New("the kernel did not answer the transaction")

// socket sends batches to the kernel, in the network namespace of the thread that opened it.
type socket struct {
	fd    int
	limit int // bytes of a batch
	buf   []byte
	clock clock.PassiveClock
	runs  []backend.Run
	// commits of this socket: each raises the kernel's generation by one.
	commits uint32
}

func openSocket(c clock.PassiveClock) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	s := &socket{fd: fd, buf: make([]byte, 64<<10), clock: c}
	if err := s.setUp(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	return s, nil
}

// setUp requests buffer space. The machine's root gets it. An ordinary user, root in a user namespace, gets no more
// than net.core.wmem_max.
func (s *socket) setUp() error {
	if err := unix.Connect(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	for _, opt := range [][2]int{{unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}, {unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, opt[0], wantedBuffer); err != nil {
			if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, opt[1], wantedBuffer); err != nil {
				return err
			}
		}
	}
	// An error need not contain the whole message that caused it, but should have the kernel's explanation.
	for _, opt := range []int{unix.NETLINK_CAP_ACK, unix.NETLINK_EXT_ACK} {
		if err := unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, opt, 1); err != nil {
			return err
		}
	}
	size, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	s.limit = size - reserve
	return err
}

func (s *socket) close() { unix.Close(s.fd) }

// split is the size at which a batch may end that may end anywhere. A rule or an element that was begun may still
// follow.
func (s *socket) split() int {
	const last = 16 << 10
	return min(batchBytes, max(s.limit-last, s.limit/2)) // net.core.wmem_max may be anything
}

// send sends a batch and reads the kernel's answer. first and last number the messages that may be answered.
func (s *socket) send(batch []byte, first, last uint32) error {
	if len(batch) > s.limit {
		return fmt.Errorf("transaction of %d bytes exceeds the limit of %d: %w", len(batch), s.limit, unix.EMSGSIZE)
	}
	start := s.clock.Now()
	err := s.exchange(batch, first, last)
	took := s.clock.Since(start) // all of it in the kernel: CPU time of a thread is counted in ticks of milliseconds
	run := backend.Run{Tool: "netlink", Wall: took, System: took, Bytes: len(batch)}
	if err != nil {
		run.ExitCode = 1
	} else {
		s.commits++
	}
	s.runs = append(s.runs, run)
	return err
}

func (s *socket) exchange(batch []byte, first, last uint32) error {
	s.drain()
	for {
		err := unix.Send(s.fd, batch, 0)
		if errors.Is(err, unix.EINTR) {
			continue // the kernel took nothing: it reads a batch whole
		}
		if err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		break
	}
	return s.answer(batch, first, last)
}

// drain discards the unread answers to an earlier batch.
func (s *socket) drain() {
	for {
		if _, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT); err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// answer reads until there is nothing left: the kernel has processed the whole batch when send returns. The first error
// is the cause of the failure. Without an error, the acknowledgement of the last message confirms the commit, unless
// answers were lost (ENOBUFS): an error may have been among them.
func (s *socket) answer(batch []byte, first, last uint32) error {
	var failed, lost error
	done := false
	for {
		n, _, err := unix.Recvfrom(s.fd, s.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			switch {
			case failed != nil:
				return failed
			case lost != nil:
				return lost
			case !done:
				return errUnanswered
			}
			return nil
		case errors.Is(err, unix.ENOBUFS):
			lost = fmt.Errorf("answers of the kernel were lost: %w", err) // the answers before are still to be read
			continue
		case err != nil:
			return fmt.Errorf("netlink: %w", err)
		}
		for b := s.buf[:n]; len(b) >= headerSize; {
			length := int(binary.NativeEndian.Uint32(b))
			if length < headerSize || length > len(b) {
				return fmt.Errorf("netlink: message of %d bytes in %d", length, len(b))
			}
			seq := binary.NativeEndian.Uint32(b[8:])
			if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR && seq-first <= last-first && length >= headerSize+4 {
				errno := -int32(binary.NativeEndian.Uint32(b[headerSize:]))
				if errno == 0 {
					done = done || seq == last
				} else if failed == nil {
					failed = describe(batch, seq, unix.Errno(errno), b[:length])
				}
			}
			b = b[min((length+3)&^3, len(b)):]
		}
	}
}

// RefusedError is the kernel's refusal of a message in a transaction, and so of the transaction.
type RefusedError struct {
	Message string // the message: kind, set or chain
	Text    string // the kernel's explanation, if any
	Errno   unix.Errno
}

// Error describes what was refused.
func (e *RefusedError) Error() string {
	if e.Text != "" {
		return fmt.Sprintf("%s: %s: %v", e.Message, e.Text, e.Errno)
	}
	return fmt.Sprintf("%s: %v", e.Message, e.Errno)
}

// Unwrap returns the kernel's error number.
func (e *RefusedError) Unwrap() error { return e.Errno }

var messageNames = map[uint16]string{
	unix.NFT_MSG_NEWTABLE: "new table", unix.NFT_MSG_DELTABLE: "delete table", unix.NFT_MSG_NEWCHAIN: "new chain",
	unix.NFT_MSG_DELCHAIN: "delete chain", unix.NFT_MSG_NEWRULE: "new rule in chain", unix.NFT_MSG_DELRULE: "flush chain",
	unix.NFT_MSG_NEWSET: "new set", unix.NFT_MSG_NEWSETELEM: "new elements of set", unix.NFT_MSG_DELSETELEM: "delete elements of set",
}

// describe finds the message in the batch that caused an error.
func describe(batch []byte, seq uint32, errno unix.Errno, answer []byte) error {
	refused := &RefusedError{Message: "transaction", Errno: errno, Text: ackText(answer)}
	for b := batch; len(b) >= headerSize; {
		length := int(binary.NativeEndian.Uint32(b))
		if length < headerSize || length > len(b) {
			break
		}
		if binary.NativeEndian.Uint32(b[8:]) == seq {
			if name := messageNames[binary.NativeEndian.Uint16(b[4:])&0xff]; name != "" && length > headerSize+nfgenSize {
				refused.Message = name
				var torn error
				names := 0
				for a := range attr.All(b[headerSize+nfgenSize:length], &torn) {
					if names++; names > 2 { // the table, and the object in it
						break
					}
					refused.Message += " " + a.Text()
				}
			}
			break
		}
		b = b[length:]
	}
	return refused
}

// ackText returns the text of an extended acknowledgement (NLMSGERR_ATTR_MSG), which follows the header of the message
// in question.
func ackText(answer []byte) string {
	const fixed, attrMsg = headerSize + 4 + headerSize, 1
	if binary.NativeEndian.Uint16(answer[6:])&unix.NLM_F_ACK_TLVS == 0 || len(answer) < fixed {
		return ""
	}
	var torn error
	for a := range attr.All(answer[fixed:], &torn) {
		if a.Type == attrMsg {
			return a.Text()
		}
	}
	return ""
}
