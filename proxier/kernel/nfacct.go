package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/attr"
)

// nfnetlink_acct (include/uapi/linux/netfilter/nfnetlink_acct.h).
const (
	subsysAcct     = 7
	acctNew        = 0
	acctGet        = 1
	acctName       = 1 // nul-terminated, at most 31 bytes
	acctPackets    = 2 // be64
	nfnetlinkBytes = 4 // struct nfgenmsg
)

// EnsureAccounts creates nfacct objects in the network namespace of the calling thread. Rules count packets in them
// with match nfacct. Existing objects keep their counts. An error means that the kernel has no nfacct.
func EnsureAccounts(names ...string) error {
	for _, name := range names {
		_, err := account(acctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, name)
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("nfacct %s: %w", name, err)
		}
	}
	return nil
}

// Accounted returns the packets that an nfacct object has counted; false when there is no such object.
func Accounted(name string) (packets uint64, ok bool) {
	// The kernel flags the answer as one of several, but sends no end. So the acknowledgement has to end it.
	messages, err := account(acctGet, unix.NLM_F_ACK, name)
	if err != nil || len(messages) == 0 || len(messages[0]) < nfnetlinkBytes {
		return 0, false
	}
	for a := range attr.All(messages[0][nfnetlinkBytes:], &err) {
		if a.Type == acctPackets && len(a.Value) == 8 {
			return binary.BigEndian.Uint64(a.Value), true
		}
	}
	return 0, false
}

func account(kind, flags int, name string) ([][]byte, error) {
	request := nl.NewNetlinkRequest(subsysAcct<<8|kind, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(acctName, nl.ZeroTerminated(name)))
	return request.Execute(unix.NETLINK_NETFILTER, 0)
}
