package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
)

// Sizes and flags of netlink (include/uapi/linux/netlink.h, nfnetlink.h). Lengths are in the machine's byte order, the
// content of attributes is in the network's.
const (
	headerSize    = unix.NLMSG_HDRLEN
	nfgenSize     = 4        // struct nfgenmsg: u8 family, u8 version, u16 resource id
	receiveBuffer = 64 << 10 // the kernel fills at most 32 KiB for one read of a dump
)

// errChanged: the ruleset changed while it was dumped (NLM_F_DUMP_INTR).
var errChanged = errors.New("the ruleset changed during the read")

// errFamily: neither IPv4 nor IPv6.
var errFamily = errors.New("unknown IP family")

var nfProtocols = map[corev1.IPFamily]byte{
	corev1.IPv4Protocol: unix.NFPROTO_IPV4,
	corev1.IPv6Protocol: unix.NFPROTO_IPV6,
}

// eachChain calls yield with each chain of a table and the number of its rules, all of one generation. It reads the
// rules chain by chain. One dump of all rules would be one request, but for each 32 KiB of it the kernel walks past all
// earlier rules. On Linux 6.18, 310,000 rules in 110,000 chains take 13 s so, and 1.4 s in 110,000 requests.
func (s *socket) eachChain(family corev1.IPFamily, table string, yield func(Chain, int)) error {
	before, err := s.generation()
	if err != nil {
		return err
	}
	var chains []Chain
	if err := s.dumpChains(family, table, func(c Chain) { chains = append(chains, c) }); err != nil {
		return err
	}
	for _, c := range chains {
		rules := 0
		err := s.dumpRules(family, table, c.Name, func([]byte) error { rules++; return nil })
		if absent(err) {
			err = cutOff(err)
		}
		if err != nil {
			return fmt.Errorf("chain %s: %w", c.Name, err)
		}
		yield(c, rules)
	}
	after, err := s.generation()
	if err == nil && before != after {
		err = errChanged
	}
	return err
}

// dumpChains calls yield for each chain of the table.
func (s *socket) dumpChains(family corev1.IPFamily, table string, yield func(Chain)) error {
	return s.dump(unix.NFT_MSG_GETCHAIN, nfProtocols[family], nil, func(attrs []byte) error {
		var c Chain
		in := ""
		var err error
		for a := range attr.All(attrs, &err) {
			switch a.Type {
			case unix.NFTA_CHAIN_TABLE:
				in = a.Text()
			case unix.NFTA_CHAIN_NAME:
				c.Name = a.Text()
			case unix.NFTA_CHAIN_HOOK:
				c.Builtin = true
			}
		}
		if err == nil && in == table {
			yield(c)
		}
		return err
	})
}

// dumpRules calls yield with the attributes of each rule of one chain.
func (s *socket) dumpRules(family corev1.IPFamily, table, chain string, yield func(attrs []byte) error) error {
	filter := attr.AppendText(nil, unix.NFTA_RULE_TABLE, table)
	filter = attr.AppendText(filter, unix.NFTA_RULE_CHAIN, chain)
	return s.dump(unix.NFT_MSG_GETRULE, nfProtocols[family], filter, yield)
}

// generation returns the number of the ruleset's last commit, in any table.
func (s *socket) generation() (id uint32, err error) {
	known := false
	err = s.one(unix.NFT_MSG_GETGEN, unix.NFPROTO_UNSPEC, nil, func(attrs []byte) error {
		var err error
		for a := range attr.All(attrs, &err) {
			if a.Type == unix.NFTA_GEN_ID && len(a.Value) == 4 {
				id, known = a.Uint32(), true
			}
		}
		return err
	})
	if err == nil && !known {
		err = errors.New("netlink: the answer has no generation of the ruleset")
	}
	return id, err
}

// socket is one netlink socket, of the network namespace of the thread that opened it.
type socket struct {
	fd  int
	seq uint32
	buf []byte
	out []byte
	// read counts the messages of dumps.
	read int
}

func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink socket: %w", err)
	}
	return &socket{fd: fd, buf: make([]byte, receiveBuffer)}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

// dump sends one dump request and calls yield with the attributes of each message of the answer, until yield fails. It
// reads the rest all the same, or the rest would pass for the answer to the next request.
func (s *socket) dump(kind uint16, protocol byte, filter []byte, yield func(attrs []byte) error) error {
	if err := s.send(kind, unix.NLM_F_REQUEST|unix.NLM_F_DUMP, protocol, filter); err != nil {
		return err
	}
	changed := false
	var failed error
	for {
		done, err := s.receive(&changed, func(attrs []byte) error {
			s.read++
			if failed == nil {
				failed = yield(attrs)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if done && failed != nil {
			return failed
		}
		if done && changed {
			return errChanged
		}
		if done {
			return nil
		}
	}
}

func (s *socket) send(kind, flags uint16, protocol byte, attrs []byte) error {
	s.seq++
	length := headerSize + nfgenSize + len(attrs)
	out := binary.NativeEndian.AppendUint32(s.out[:0], uint32(length))
	out = binary.NativeEndian.AppendUint16(out, unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	out = binary.NativeEndian.AppendUint16(out, flags)
	out = binary.NativeEndian.AppendUint32(out, s.seq)
	out = binary.NativeEndian.AppendUint32(out, 0) // from: the kernel fills it in
	out = append(out, protocol, unix.NFNETLINK_V0, 0, 0)
	s.out = append(out, attrs...)
	if _, err := unix.Write(s.fd, s.out); err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	return nil
}

// receive reads once, parses what it read, and reports whether it was the last of an answer.
func (s *socket) receive(changed *bool, yield func(attrs []byte) error) (done bool, err error) {
	n, err := unix.Read(s.fd, s.buf)
	for errors.Is(err, unix.EINTR) {
		n, err = unix.Read(s.fd, s.buf)
	}
	if err != nil {
		return false, fmt.Errorf("netlink: %w", err)
	}
	return s.messages(s.buf[:n], changed, yield)
}

// messages parses one read of a dump and reports whether it was the last.
func (s *socket) messages(b []byte, changed *bool, yield func(attrs []byte) error) (done bool, err error) {
	for len(b) >= headerSize {
		length := int(binary.NativeEndian.Uint32(b))
		kind := binary.NativeEndian.Uint16(b[4:])
		flags := binary.NativeEndian.Uint16(b[6:])
		seq := binary.NativeEndian.Uint32(b[8:])
		if length < headerSize || length > len(b) {
			return false, fmt.Errorf("netlink: message of %d bytes in %d", length, len(b))
		}
		body := b[headerSize:length]
		b = b[min(attr.Align(length), len(b)):]
		if seq != s.seq {
			continue // of an abandoned dump
		}
		if flags&unix.NLM_F_DUMP_INTR != 0 {
			*changed = true
		}
		switch kind {
		case unix.NLMSG_ERROR, unix.NLMSG_DONE:
			if len(body) >= 4 {
				if errno := int32(binary.NativeEndian.Uint32(body)); errno < 0 {
					return false, fmt.Errorf("netlink dump: %w", unix.Errno(-errno))
				}
			}
			return true, nil
		default:
			if len(body) < nfgenSize {
				return false, fmt.Errorf("netlink: message of %d bytes", length)
			}
			if err := yield(body[nfgenSize:]); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}
