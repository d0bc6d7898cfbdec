package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/xtables"
)

// The request of nft_compat (include/uapi/linux/netfilter/nf_tables_compat.h).
const (
	subsysCompat   = 11
	compatGet      = 0
	compatName     = 1 // nul-terminated
	compatRevision = 2 // be32
	compatType     = 3 // be32: 0 asks for a match, 1 for a target
)

// HasMatch reports whether the kernel has an xtables match in one of some revisions, for rules of a variant. The
// request loads the match's module. A kernel that cannot answer the request does not have the match either.
func HasMatch(variant string, family corev1.IPFamily, name string, revisions ...uint8) (bool, error) {
	has := hasMatchLegacy
	if variant == Nft {
		has = hasMatchNft
	}
	for _, revision := range revisions {
		if found, err := has(family, name, revision); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

func hasMatchLegacy(family corev1.IPFamily, name string, revision uint8) (bool, error) {
	s, err := xtables.Open(family)
	if err != nil {
		return false, err
	}
	defer s.Close()
	found, err := s.Knows(false, name, revision)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return false, nil // no ip_tables
	}
	return found, err
}

func hasMatchNft(family corev1.IPFamily, name string, revision uint8) (bool, error) {
	request := nl.NewNetlinkRequest(subsysCompat<<8|compatGet, unix.NLM_F_ACK)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: nfProtocols[family], Version: nl.NFNETLINK_V0})
	request.AddData(nl.NewRtAttr(compatName, nl.ZeroTerminated(name)))
	request.AddData(nl.NewRtAttr(compatRevision, binary.BigEndian.AppendUint32(nil, uint32(revision))))
	request.AddData(nl.NewRtAttr(compatType, binary.BigEndian.AppendUint32(nil, 0)))
	switch _, err := request.Execute(unix.NETLINK_NETFILTER, 0); {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EPROTONOSUPPORT), errors.Is(err, unix.EINVAL), errors.Is(err, unix.EOPNOTSUPP):
		return false, nil // no such match, or no nft_compat
	default:
		return false, fmt.Errorf("revision %d of match %s: %w", revision, name, err)
	}
}
