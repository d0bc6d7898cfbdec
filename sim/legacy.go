package sim

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"synclab/internal/inet"
)

// Legacy spellings of addresses and ranges (KEP-4858). The API server took them before its feature
// StrictIPCIDRValidation, and keeps them in objects that have them: leading zeros, which are decimal, IPv4 addresses
// spelled as IPv6 ones, ranges with bits beyond their prefix, IPv6 that is not canonical. Proxies read them.

// ParsePrefix reads a range as kube-proxy does, without the bits beyond its prefix, and without blanks around it.
func ParsePrefix(text string) (netip.Prefix, bool) {
	prefix, err := inet.ParsePrefix(strings.TrimSpace(text))
	return prefix, err == nil
}

// Legacy collects what one object has and an API server refuses in new objects. A nil Legacy refuses it.
type Legacy struct{ Notes []string }

func (l *Legacy) note(path *field.Path, text, read string) {
	l.Note(fmt.Sprintf("%s %s is %s", path, strconv.Quote(text), read))
}

func (l *Legacy) Note(text string) { l.Notes = append(l.Notes, text) }

func (l *Legacy) checkIP(path *field.Path, text string) field.ErrorList {
	errs := validation.IsValidIP(path, text)
	addr, ok := inet.ParseAddr(text)
	if len(errs) == 0 || l == nil || !ok {
		return errs
	}
	l.note(path, text, "read as "+addr.String()+": write it so in new objects")
	return nil
}

// CheckReachableIP refuses what the API refuses for endpoints and externalIPs: addresses with a meaning only on their
// own machine or link.
func (l *Legacy) CheckReachableIP(path *field.Path, text string) field.ErrorList {
	if errs := l.checkIP(path, text); len(errs) > 0 {
		return errs
	}
	ip, ok := inet.ParseAddr(text)
	if !ok {
		return field.ErrorList{field.Invalid(path, text, "not an IP address")}
	}
	if ip.IsUnspecified() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() {
		return field.ErrorList{field.Invalid(path, text, "may not be an unspecified, loopback or link-local address")}
	}
	return nil
}

func (l *Legacy) checkCIDR(path *field.Path, text string) field.ErrorList {
	errs := validation.IsValidCIDR(path, strings.TrimSpace(text))
	prefix, ok := ParsePrefix(text)
	if len(errs) == 0 || l == nil || !ok {
		return errs
	}
	l.note(path, text, "read as "+prefix.String()+": write it so in new objects")
	return nil
}

// checkUnread checks an address that the API server does not check and no proxy reads.
func (l *Legacy) checkUnread(path *field.Path, text string) field.ErrorList {
	if errs := l.checkIP(path, text); len(errs) > 0 && l == nil {
		return errs
	} else if len(errs) > 0 {
		l.note(path, text, "no address: ignored")
	}
	return nil
}
