package sim

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utilnet "k8s.io/utils/net"
)

// Addresses and ranges in spellings that the API server took before its feature StrictIPCIDRValidation, and keeps in
// the objects that have them (KEP-4858): leading zeros, which are decimal, IPv4 addresses spelled as IPv6 ones, ranges
// with bits beyond their prefix, IPv6 that is not canonical. Proxies read them.

// ParseAddr reads an address as kube-proxy does.
func ParseAddr(text string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap(), addr.Zone() == ""
	}
	addr, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(text))
	return addr.Unmap(), ok
}

// ParsePrefix reads a range as kube-proxy does, without the bits beyond its prefix.
func ParsePrefix(text string) (netip.Prefix, bool) {
	_, network, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(text))
	if err != nil {
		return netip.Prefix{}, false
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	ones, bits := network.Mask.Size()
	if addr.Is4In6() && bits == 128 {
		ones -= 96 // the length of ::ffff:0:0
	}
	prefix := netip.PrefixFrom(addr.Unmap(), ones)
	return prefix, prefix.IsValid()
}

// fromServer tells an API server's object by what the server sets.
func fromServer(object metav1.Object) bool {
	created := object.GetCreationTimestamp()
	return object.GetUID() != "" || object.GetResourceVersion() != "" || !created.IsZero()
}

// legacy are the addresses of one object that an API server refuses in new objects. A nil legacy refuses them.
type legacy struct{ notes []string }

func legacyOf(object metav1.Object) *legacy {
	if fromServer(object) {
		return &legacy{}
	}
	return nil
}

func (l *legacy) note(path *field.Path, text, read string) {
	l.notes = append(l.notes, fmt.Sprintf("%s %s is %s", path, strconv.Quote(text), read))
}

func (l *legacy) checkIP(path *field.Path, text string) field.ErrorList {
	errs := validation.IsValidIP(path, text)
	addr, ok := ParseAddr(text)
	if len(errs) == 0 || l == nil || !ok {
		return errs
	}
	l.note(path, text, "read as "+addr.String()+": write it so in new objects")
	return nil
}

// checkReachableIP refuses what the API refuses for endpoints and externalIPs:
// addresses that mean something only on the machine or the link they are on.
func (l *legacy) checkReachableIP(path *field.Path, text string) field.ErrorList {
	if errs := l.checkIP(path, text); len(errs) > 0 {
		return errs
	}
	ip, ok := ParseAddr(text)
	if !ok {
		return field.ErrorList{field.Invalid(path, text, "not an IP address")}
	}
	if ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() {
		return field.ErrorList{field.Invalid(path, text, "may not be an unspecified, loopback or link-local address")}
	}
	return nil
}

func (l *legacy) checkCIDR(path *field.Path, text string) field.ErrorList {
	errs := validation.IsValidCIDR(path, strings.TrimSpace(text))
	prefix, ok := ParsePrefix(text)
	if len(errs) == 0 || l == nil || !ok {
		return errs
	}
	l.note(path, text, "read as "+prefix.String()+": write it so in new objects")
	return nil
}

// checkUnread is for an address that the API server does not check and no proxy reads.
func (l *legacy) checkUnread(path *field.Path, text string) field.ErrorList {
	if errs := l.checkIP(path, text); len(errs) > 0 && l == nil {
		return errs
	} else if len(errs) > 0 {
		l.note(path, text, "no address: ignored")
	}
	return nil
}

// warn tells of an object's legacy addresses, if any.
func (m *manifests) warn(kind string, object metav1.Object, l *legacy) {
	if m.opts.Warned == nil || l == nil || len(l.notes) == 0 {
		return
	}
	text := l.notes[0]
	if more := len(l.notes) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	at := m.found[object]
	m.opts.Warned(Warning{
		File: at.document.file, Line: at.line(""), Object: objectName(kind, object),
		Text: text,
	})
}

// canonicalAddresses respells the addresses of a slice that is made here: it is a new object.
func canonicalAddresses(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Endpoints {
		for j, text := range slice.Endpoints[i].Addresses {
			if addr, ok := ParseAddr(text); ok {
				slice.Endpoints[i].Addresses[j] = addr.String()
			}
		}
	}
}
