package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// maxCap is the size above which kube-proxy does not raise nf_conntrack_max by itself.
	maxCap = 1 << 20

	// bucketShare is the number of entries per hash bucket that kube-proxy configures. The kernel's ratio is between 1
	// and 8.
	bucketShare = 4

	netfilterDir = "proc/sys/net/netfilter"
	hashsizePath = "sys/module/nf_conntrack/parameters/hashsize"
)

// Limits is kube-proxy's conntrack configuration. In each field, 0 keeps the kernel's value.
type Limits struct {
	// MaxPerCore is the number of entries for each of Cores. The table size is at least Min and at most 1,048,576,
	// unless Min is more. With MaxPerCore 0 the size is not set.
	MaxPerCore, Min, Cores int

	// TCPEstablished and TCPCloseWait are timeouts, in whole seconds.
	TCPEstablished, TCPCloseWait time.Duration
	// TCPBeLiberal keeps packets outside the TCP window from counting as INVALID.
	TCPBeLiberal bool
	// UDP and UDPStream are the timeouts of flows without and with replies.
	UDP, UDPStream time.Duration
}

// Sysctl is one kernel setting.
type Sysctl struct {
	// Path below the root directory, "proc/sys/net/netfilter/...".
	Path  string
	Value int
	// AtLeast: a larger current value stays.
	AtLeast bool
	// Machine: the setting belongs to the whole machine, not to a network namespace. The kernel shows nf_conntrack_max
	// in each namespace but lets only the first one write it. hashsize is a module parameter that any root may write; a
	// lab must not.
	Machine bool
}

// Sysctls returns the settings for l, in the order in which to write them.
func Sysctls(l Limits) []Sysctl {
	var list []Sysctl
	if size := l.tableSize(); size > 0 {
		list = append(list,
			Sysctl{Path: filepath.Join(netfilterDir, "nf_conntrack_max"), Value: size, AtLeast: true, Machine: true},
			Sysctl{Path: hashsizePath, Value: size / bucketShare, AtLeast: true, Machine: true})
	}
	if l.TCPBeLiberal {
		list = append(list, Sysctl{Path: filepath.Join(netfilterDir, "nf_conntrack_tcp_be_liberal"), Value: 1})
	}
	for _, t := range []struct {
		name  string
		value time.Duration
	}{
		{"nf_conntrack_tcp_timeout_established", l.TCPEstablished},
		{"nf_conntrack_tcp_timeout_close_wait", l.TCPCloseWait},
		{"nf_conntrack_udp_timeout", l.UDP},
		{"nf_conntrack_udp_timeout_stream", l.UDPStream},
	} {
		if seconds := int(t.value / time.Second); seconds > 0 {
			list = append(list, Sysctl{Path: filepath.Join(netfilterDir, t.name), Value: seconds})
		}
	}
	return list
}

// tableSize returns the value for nf_conntrack_max; 0: do not set it.
func (l Limits) tableSize() int {
	if l.MaxPerCore <= 0 {
		return 0
	}
	return max(min(l.MaxPerCore*l.Cores, maxCap), l.Min)
}

// Setting is the result of writing one Sysctl.
type Setting struct {
	Sysctl
	// Before is the value before the write; 0 if it could not be read.
	Before int
	// Written: the value was changed.
	Written bool
	// Note explains why the setting was not written; empty otherwise.
	Note string
}

// ApplyOptions configures Apply.
type ApplyOptions struct {
	// Root is the directory that contains proc and sys; "/" when empty.
	Root string
	// Machine allows machine-wide settings. Otherwise they are noted and skipped.
	Machine bool
}

// Apply writes the settings in the network namespace of the calling thread. A setting that cannot be written here
// (read-only in a namespace, or missing in this kernel) is noted and skipped: the proxier works without it. Apply tries
// all settings and then returns other failures.
func Apply(list []Sysctl, opts ApplyOptions) ([]Setting, error) {
	var settings []Setting
	var errs []error
	for _, s := range list {
		setting, err := applyOne(s, cmp.Or(opts.Root, "/"), opts.Machine)
		settings = append(settings, setting)
		errs = append(errs, err)
	}
	return settings, errors.Join(errs...)
}

func applyOne(s Sysctl, root string, machine bool) (Setting, error) {
	setting := Setting{Sysctl: s}
	path := filepath.Join(root, s.Path)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		setting.Note = "this kernel does not have the setting"
		return setting, nil
	case readOnly(err):
		setting.Note = "not readable in this namespace: " + err.Error()
		return setting, nil
	case err != nil:
		return setting, fmt.Errorf("read sysctl: %w", err)
	}
	if setting.Before, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return setting, fmt.Errorf("sysctl %s: %w", path, err)
	}
	switch {
	case setting.Before == s.Value || s.AtLeast && setting.Before > s.Value:
		return setting, nil
	case s.Machine && !machine:
		setting.Note = "not written: the setting is machine-wide"
		return setting, nil
	}
	// os.WriteFile would create a missing file.
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(s.Value))
		err = errors.Join(err, f.Close())
	}
	switch {
	case err == nil:
		setting.Written = true
		return setting, nil
	case readOnly(err):
		setting.Note = fmt.Sprintf("not writable in this namespace: %v", err)
		return setting, nil
	}
	return setting, fmt.Errorf("write %d to sysctl: %w", s.Value, err)
}

// readOnly reports whether the namespace or the mount does not allow an access: EACCES and EPERM for a sysctl of
// another namespace, EROFS for a container's /proc/sys.
func readOnly(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}
