package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

const netfilterDir = "proc/sys/net/netfilter"

// ApplySysctls writes kube-proxy's conntrack settings in the network namespace of the calling thread. root is the folder that
// has proc. 0 keeps the kernel's value. A setting that cannot be written here (read-only in a namespace, or missing in this
// kernel) is skipped: the proxier works without it. All settings are tried; the error has all other failures.
//
// It leaves the size of the table alone, since that belongs to the whole machine: the kernel shows nf_conntrack_max in each
// namespace, but lets only the first one write it.
func ApplySysctls(root string, c *v1alpha1.KubeProxyConntrackConfiguration) error {
	var errs []error
	set := func(name string, value int) {
		if value <= 0 {
			return
		}
		// os.WriteFile would create a missing file.
		f, err := os.OpenFile(filepath.Join(root, netfilterDir, name), os.O_WRONLY|os.O_TRUNC, 0)
		if err == nil {
			_, err = f.WriteString(strconv.Itoa(value))
			err = errors.Join(err, f.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !readOnly(err) {
			errs = append(errs, fmt.Errorf("write %d to sysctl: %w", value, err))
		}
	}
	seconds := func(name string, d time.Duration) { set(name, int(d/time.Second)) }
	if c.TCPBeLiberal {
		set("nf_conntrack_tcp_be_liberal", 1)
	}
	seconds("nf_conntrack_tcp_timeout_established", ptr.Deref(c.TCPEstablishedTimeout, metav1.Duration{}).Duration)
	seconds("nf_conntrack_tcp_timeout_close_wait", ptr.Deref(c.TCPCloseWaitTimeout, metav1.Duration{}).Duration)
	seconds("nf_conntrack_udp_timeout", c.UDPTimeout.Duration)
	seconds("nf_conntrack_udp_timeout_stream", c.UDPStreamTimeout.Duration)
	return errors.Join(errs...)
}

// readOnly reports whether the namespace or the mount does not allow an access: EACCES and EPERM for a sysctl of
// another namespace, EROFS for a container's /proc/sys.
func readOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
