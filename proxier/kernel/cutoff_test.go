package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"

	"synclab/proxier/kernel/attr"
)

// answering returns a netlink socket whose other end is not the kernel. answer gives the messages for each request,
// which one read returns. The last message ends the dump with an error number, 0 for none.
func answering(t *testing.T, answer func(kind uint16) (messages [][]byte, errno unix.Errno)) *Nftables {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		request := make([]byte, 4096)
		for {
			n, err := unix.Read(ends[1], request)
			if n == 0 || err != nil {
				return
			}
			seq := binary.NativeEndian.Uint32(request[8:])
			kind := binary.NativeEndian.Uint16(request[4:]) & 0xff
			messages, errno := answer(kind)
			var reply []byte
			for _, attrs := range messages {
				reply = append(reply, message(kind, seq, append(make([]byte, nfgenSize), attrs...))...)
			}
			reply = append(reply, message(unix.NLMSG_DONE, seq, binary.NativeEndian.AppendUint32(nil, uint32(-int32(errno))))...)
			if _, err := unix.Write(ends[1], reply); err != nil {
				return
			}
		}
	}()
	n := &Nftables{&socket{fd: ends[0], buf: make([]byte, receiveBuffer)}}
	t.Cleanup(func() { n.Close(); <-done; unix.Close(ends[1]) })
	return n
}

func message(kind uint16, seq uint32, body []byte) []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(headerSize+len(body)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = binary.NativeEndian.AppendUint16(b, 0)
	b = binary.NativeEndian.AppendUint32(b, seq)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = append(b, body...)
	return append(b, make([]byte, attr.Align(len(b))-len(b))...)
}

// ENOENT means that there is no such object only before anything was read. Later it means that the answer was cut off,
// for example because the table was deleted. Then the question is repeated, as often as for a ruleset that changes.
func TestCutOff(t *testing.T) {
	const family, table = corev1.IPv4Protocol, "some"
	element := attr.Append(nil, unix.NFTA_SET_ELEM_LIST_ELEMENTS|unix.NLA_F_NESTED, attr.Append(nil, unix.NFTA_LIST_ELEM|unix.NLA_F_NESTED,
		attr.Append(nil, unix.NFTA_SET_ELEM_KEY|unix.NLA_F_NESTED, attr.Append(nil, unix.NFTA_DATA_VALUE, []byte{1, 2, 3, 4}))))
	chain := attr.AppendText(attr.AppendText(nil, unix.NFTA_CHAIN_TABLE, table), unix.NFTA_CHAIN_NAME, "a")
	set := attr.AppendText(attr.AppendText(nil, unix.NFTA_SET_TABLE, table), unix.NFTA_SET_NAME, "s")
	generation := attr.Append(nil, unix.NFTA_GEN_ID, []byte{0, 0, 0, 7})
	// cut is the dump that ends with ENOENT after its messages, the first times that it is requested.
	answers := func(cut uint16, times int) func(uint16) ([][]byte, unix.Errno) {
		return func(kind uint16) ([][]byte, unix.Errno) {
			errno := unix.Errno(0)
			if kind == cut && times > 0 {
				times--
				errno = unix.ENOENT
			}
			return map[uint16][][]byte{
				unix.NFT_MSG_GETGEN: {generation}, unix.NFT_MSG_GETCHAIN: {chain}, unix.NFT_MSG_GETSET: {set},
				unix.NFT_MSG_GETRULE: {nil}, unix.NFT_MSG_GETSETELEM: {element, element},
			}[kind], errno
		}
	}
	for _, x := range []struct {
		name string
		cut  uint16
		ask  func(*Nftables) (n int, err error)
		want int
	}{
		{"Tally, sets", unix.NFT_MSG_GETSET, tallied, 5},
		{"Tally, elements", unix.NFT_MSG_GETSETELEM, tallied, 5},
		{"Tally, rules", unix.NFT_MSG_GETRULE, tallied, 5},
		{"Elements", unix.NFT_MSG_GETSETELEM, func(n *Nftables) (int, error) {
			elements, err := n.Elements(family, table, "s")
			return len(elements), err
		}, 2},
		{"Sizes", unix.NFT_MSG_GETSETELEM, func(n *Nftables) (int, error) {
			sizes, err := n.Sizes(family, table)
			if len(sizes) != 1 {
				return 0, err
			}
			return sizes[0].Elements, err
		}, 2},
		{"RulesByChain", unix.NFT_MSG_GETRULE, func(n *Nftables) (int, error) {
			tally, err := n.RulesByChain(family, table)
			return tally["a"], err
		}, 1},
		{"Rules", unix.NFT_MSG_GETRULE, func(n *Nftables) (int, error) {
			rules, err := n.Rules(family, table, "a")
			return len(rules), err
		}, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			if got, err := x.ask(answering(t, answers(x.cut, 1000))); !Changed(err) {
				t.Errorf("always cut off: %d, %v", got, err)
			}
			if got, err := x.ask(answering(t, answers(x.cut, 1))); got != x.want || err != nil {
				t.Errorf("cut off once: %d, not %d, %v", got, x.want, err)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		n := answering(t, func(kind uint16) ([][]byte, unix.Errno) {
			switch kind {
			case unix.NFT_MSG_GETGEN:
				return [][]byte{generation}, 0
			case unix.NFT_MSG_GETCHAIN: // of another table
				return [][]byte{attr.AppendText(attr.AppendText(nil, unix.NFTA_CHAIN_TABLE, "other"), unix.NFTA_CHAIN_NAME, "a")}, 0
			}
			return nil, unix.ENOENT
		})
		if got, err := n.Tally(family, table); got != (NftTally{}) || err != nil {
			t.Errorf("Tally: %v, %v", got, err)
		}
		if err := n.Dump(family, table, func(uint16, []byte) error { return errors.New("called") }); err != nil {
			t.Errorf("Dump: %v", err)
		}
	})
}

func tallied(n *Nftables) (int, error) {
	got, err := n.Tally(corev1.IPv4Protocol, "some")
	return got.Rules + got.Chains + got.Sets + got.Elements, err
}

// A dump of a table that is deleted meanwhile fails. It is no dump of a smaller table.
func TestDumpOfDeleted(t *testing.T) {
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Skip(err)
	}
	netns.Fresh(t)
	run := func(args ...string) {
		if out, err := exec.Command(nft, args...).CombinedOutput(); err != nil {
			t.Fatalf("nft %v: %v: %s", args, err, out)
		}
	}
	for _, at := range []uint16{unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_NEWRULE} {
		run("add table ip some; add chain ip some a; add chain ip some b; add rule ip some a accept; add rule ip some b accept;" +
			" add set ip some s { type ipv4_addr; }; add set ip some t { type ipv4_addr; }; add element ip some s { 10.0.0.1 }; add element ip some t { 10.0.0.1 }")
		n, err := OpenNftables()
		if err != nil {
			t.Fatal(err)
		}
		deleted := false
		err = n.Dump(corev1.IPv4Protocol, "some", func(kind uint16, _ []byte) error {
			if kind == at && !deleted {
				deleted = true
				run("delete table ip some")
			}
			return nil
		})
		n.Close()
		if !deleted || !Changed(err) {
			t.Errorf("deleted at message %d (%t): %v", at, deleted, err)
		}
	}
}

// A generation of 0 without an error would pass for a ruleset that does not change.
func TestGenerationIsNeverAssumed(t *testing.T) {
	generation := attr.Append(nil, unix.NFTA_GEN_ID, []byte{0, 0, 0, 7})
	for name, x := range map[string]struct {
		answer [][]byte
		errno  unix.Errno
		want   uint32
	}{
		"known":         {[][]byte{generation}, 0, 7},
		"no message":    {nil, 0, 0},
		"no attribute":  {[][]byte{nil}, 0, 0},
		"short":         {[][]byte{attr.Append(nil, unix.NFTA_GEN_ID, []byte{7})}, 0, 0},
		"not permitted": {nil, unix.EPERM, 0},
	} {
		t.Run(name, func(t *testing.T) {
			n := answering(t, func(uint16) ([][]byte, unix.Errno) { return x.answer, x.errno })
			if got, err := n.Generation(); got != x.want || (err == nil) != (x.want != 0) {
				t.Errorf("generation %d, %v; want %d", got, err, x.want)
			}
		})
	}
}

// The rest of an abandoned dump comes before the answer, in a read of its own.
func TestGenerationAfterAnAbandonedDump(t *testing.T) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	n := &Nftables{&socket{fd: ends[0], seq: 5, buf: make([]byte, receiveBuffer)}}
	defer n.Close()
	defer unix.Close(ends[1])
	const old, asked = 5, 6
	for _, m := range [][]byte{
		message(0, old, append(make([]byte, nfgenSize), attr.Append(nil, unix.NFTA_GEN_ID, []byte{0, 0, 0, 3})...)),
		message(0, asked, append(make([]byte, nfgenSize), attr.Append(nil, unix.NFTA_GEN_ID, []byte{0, 0, 0, 7})...)),
	} {
		if _, err := unix.Write(ends[1], m); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := n.Generation(); got != 7 || err != nil {
		t.Errorf("generation %d, %v; want 7", got, err)
	}
}

// A signal interrupts a read from a socket with a timeout, even with SA_RESTART (signal(7)).
func TestGenerationDespiteSignals(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	reader := unix.Gettid()
	n := answering(t, func(uint16) ([][]byte, unix.Errno) {
		for range 3 {
			for !asleep(reader) {
				runtime.Gosched()
			}
			if err := unix.Tgkill(unix.Getpid(), reader, unix.SIGURG); err != nil {
				t.Error(err)
			}
		}
		return [][]byte{attr.Append(nil, unix.NFTA_GEN_ID, []byte{0, 0, 0, 7})}, 0
	})
	if err := unix.SetsockoptTimeval(n.s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 3600}); err != nil {
		t.Fatal(err)
	}
	if got, err := n.Generation(); got != 7 || err != nil {
		t.Errorf("generation %d, %v; want 7", got, err)
	}
}

// asleep reports whether a thread of this process waits in the kernel.
func asleep(thread int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", thread))
	_, after, found := strings.Cut(string(stat), ") ")
	return err == nil && found && strings.HasPrefix(after, "S")
}
