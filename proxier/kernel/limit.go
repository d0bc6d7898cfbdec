package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// SendLimit returns how many bytes of netlink messages one iptables-nft-restore of this user may send; 0: no limit. The
// tool sends a restore as one batch, with one sendmsg(2), and requests buffer space with SO_SNDBUFFORCE. That requires
// CAP_NET_ADMIN in the machine's first user namespace. Without it, the socket keeps net.core.wmem_default (208 KiB
// unless changed). A larger restore fails as a whole with "sendmsg() failed: Message too long". A rule with comment and
// target takes about 600 bytes, a chain about 100.
func SendLimit() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("netlink socket: %w", err)
	}
	defer unix.Close(fd)
	const tried = 1 << 20
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, tried)
	if err == nil {
		return 0, nil
	}
	if !errors.Is(err, unix.EPERM) {
		return 0, fmt.Errorf("SO_SNDBUFFORCE: %w", err)
	}
	size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
	if err != nil {
		return 0, fmt.Errorf("SO_SNDBUF: %w", err)
	}
	const reserve = 32 // netlink_sendmsg keeps this much of the buffer
	return size - reserve, nil
}
