package traffic

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// longLivedFlow is a long-lived flow: a connection, or a UDP flow from one source port. It lasts as long as the stream, and
// sends a packet every longLivedPeriod.
type longLivedFlow struct {
	number  int // from 1
	target  int
	from    netip.AddrPort
	sources *sourcePorts
	fd      int // -1 if there is none
	opened  bool
	life    int
	next    int64 // time of the next packet
	asked   uint64
	// unanswered packets, oldest first.
	unanswered []question
}

type question struct {
	number uint64
	sent   int64
}

// maxUnanswered bounds the unanswered packets of one flow.
const maxUnanswered = 16

// errEnded means that the other end closed the connection.
var errEnded = errors.New("the endpoint closed the connection")

// ask sends a question.
func ask(fd int, number uint64) error {
	var packet [questionSize]byte
	binary.BigEndian.PutUint64(packet[:], number)
	_, err := unix.Write(fd, packet[:])
	return err
}

// hear reads an answer.
func hear(fd int) (by netip.AddrPort, question uint64, err error) {
	var packet [answerSize]byte
	n, err := unix.Read(fd, packet[:])
	switch {
	case err != nil:
		return by, 0, err
	case n == 0:
		return by, 0, errEnded
	}
	by, question, ok := ReadAnswer(packet[:n])
	if !ok {
		return by, 0, io.ErrUnexpectedEOF
	}
	return by, question, nil
}

func (s *stream) holdFlows(sources map[corev1.IPFamily]*sourcePorts) {
	for _, targets := range [][]int{s.LongLivedTCP, s.LongLivedUDP} {
		for _, target := range targets {
			s.held = append(s.held, &longLivedFlow{
				number: len(s.held) + 1, target: target, fd: -1, sources: sources[s.Targets[target].Family],
			})
		}
	}
}

// startHeld spreads the long-lived flows evenly over their period.
func (s *stream) startHeld() {
	for i, h := range s.held {
		h.next = s.began + int64(longLivedPeriod)*int64(i)/int64(len(s.held))
	}
}

func (s *stream) nextHeld() int64 {
	next := s.clock.now() + heartbeat
	for _, h := range s.held {
		next = min(next, h.next)
	}
	return next
}

// tickHeld lets each long-lived flow send if it is scheduled, and expires unanswered packets.
func (s *stream) tickHeld(now int64) {
	for _, h := range s.held {
		if h.next > now {
			continue
		}
		for h.next <= now { // a late flow skips packets: they are no new flows, so there is nothing to catch up
			h.next += int64(longLivedPeriod)
		}
		protocol := s.Targets[h.target].Protocol
		limit := int64(udpLimit)
		if protocol == corev1.ProtocolTCP {
			limit = int64(heldTCPLimit)
		}
		for len(h.unanswered) > 0 && h.unanswered[0].sent+limit <= now {
			outcome := TimedOut
			if now > h.unanswered[0].sent+limit+int64(longLivedPeriod+lateWatch) {
				outcome = Unwatched
			}
			s.heldOver(h, 0, outcome, netip.AddrPort{})
			if protocol == corev1.ProtocolTCP {
				s.drop(h)
			}
		}
		if h.fd < 0 {
			s.connect(h, protocol)
		} else if len(h.unanswered) < maxUnanswered && (h.opened || protocol == corev1.ProtocolUDP) {
			s.askAgain(h)
		}
	}
}

// connect opens a long-lived flow. The first answer on a TCP connection comes without a question.
func (s *stream) connect(h *longLivedFlow, protocol corev1.Protocol) {
	if protocol == corev1.ProtocolTCP || h.life == 0 {
		h.from = h.sources.take() // a UDP flow keeps its source port
	}
	h.life++
	h.opened, h.unanswered = false, nil
	sent := s.clock.now()
	fd, err := Dial(protocol, h.from, s.Targets[h.target].Addr)
	if err == nil {
		err = s.watch(fd)
	}
	h.unanswered = append(h.unanswered, question{0, sent})
	if err != nil {
		s.heldOver(h, 0, refusal(err, false), netip.AddrPort{})
		return
	}
	h.fd = fd
	s.heldBy[fd] = h
	if protocol == corev1.ProtocolUDP {
		h.unanswered = nil
		s.askAgain(h)
	}
}

// askAgain sends the next packet. An error of a datagram socket belongs to an earlier packet; this packet was not sent.
func (s *stream) askAgain(h *longLivedFlow) {
	h.asked++
	err := ask(h.fd, h.asked)
	if err != nil && len(h.unanswered) > 0 && s.Targets[h.target].Protocol == corev1.ProtocolUDP {
		s.broken(h, err)
		err = ask(h.fd, h.asked)
	}
	h.unanswered = append(h.unanswered, question{h.asked, s.clock.now()})
	if err != nil {
		s.broken(h, err)
	}
}

// hear reads the answers to a long-lived flow's packets.
func (s *stream) hear(h *longLivedFlow) {
	for h.fd >= 0 {
		by, number, err := hear(h.fd)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			s.broken(h, err)
			return
		}
		for i := range h.unanswered {
			if h.unanswered[i].number == number {
				s.heldOver(h, i, Answered, by)
				h.opened = true
				break
			}
		}
	}
}

// broken ends a connection, or the last packet of a UDP flow, which continues. A UDP packet is refused while it is
// sent, or soon after. Earlier unanswered packets got neither an answer nor a refusal.
func (s *stream) broken(h *longLivedFlow, err error) {
	tcp := s.Targets[h.target].Protocol == corev1.ProtocolTCP
	if len(h.unanswered) == 0 {
		h.unanswered = append(h.unanswered, question{h.asked, s.clock.now()})
	}
	i := 0
	if !tcp {
		i = len(h.unanswered) - 1
	}
	s.heldOver(h, i, refusal(err, tcp && h.opened), netip.AddrPort{})
	if tcp {
		s.drop(h)
	}
}

// drop closes a connection. The next connection is made when the next packet is scheduled.
func (s *stream) drop(h *longLivedFlow) {
	if h.fd >= 0 {
		delete(s.heldBy, h.fd)
		unix.Close(h.fd)
	}
	h.fd, h.opened, h.unanswered = -1, false, nil
}

// heldOver reports the result of one packet.
func (s *stream) heldOver(h *longLivedFlow, i int, outcome string, by netip.AddrPort) {
	q := h.unanswered[i]
	h.unanswered = append(h.unanswered[:i:i], h.unanswered[i+1:]...)
	s.tell(Result{
		Target: h.target, LongLived: h.number, Opened: h.opened, Life: h.life,
		Due: q.sent, Sent: q.sent, End: s.clock.now(), Outcome: outcome, By: by,
	})
}
