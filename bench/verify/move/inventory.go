package move

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/subject"
	"synclab/bench/subject/visible"
	"synclab/bench/verify/owner"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/kernel/attr"
)

// Thing is an object in the kernel.
type Thing struct {
	Kind   string // "chains"; see the constants
	Table  string // where: "iptables-nft nat"
	Family corev1.IPFamily
	Name   string
}

// The kinds of a Thing.
const (
	Chains    = "chains"
	Tables    = "tables"
	Sets      = "sets"
	Servers   = "virtual servers"
	Devices   = "devices"
	Addresses = "addresses"
	Flows     = "conntrack entries" // counted, but not left behind by anyone
)

// Inventory has the things in the kernel, each with the number of its rules.
type Inventory map[Thing]int

// ipvsDevice has the addresses of Services in kube-proxy's mode ipvs.
const ipvsDevice = "kube-ipvs0"

var iptablesTables = []string{"nat", "filter", "mangle", "raw"}

// Read lists the things in the calling thread's network namespace. Of iptables, it lists kube-proxy's and Synclab's chains.
// steady repeats a read whose rules change meanwhile.
func Read(families []corev1.IPFamily, steady func(func() error) error) (Inventory, error) {
	inv := Inventory{}
	for _, family := range families {
		for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
			for _, table := range iptablesTables {
				var tally map[string]int
				err := steady(func() (err error) { tally, err = kernel.Tally(string(variant), family, table); return err })
				if err != nil {
					return nil, err
				}
				for chain, rules := range tally {
					if strings.HasPrefix(chain, "KUBE-") {
						inv[Thing{Chains, tableName(variant, table), family, chain}] = rules
					}
				}
			}
		}
		if err := inv.addTables(family, steady); err != nil {
			return nil, err
		}
		if err := inv.addFlows(family); err != nil {
			return nil, err
		}
	}
	return inv, errors.Join(inv.addSets(), inv.addServers(families), inv.addDevice(families))
}

func tableName(variant iptables.Variant, table string) string {
	return "iptables-" + string(variant) + " " + table
}

// addTables adds the tables of nf_tables that proxies with that backend have.
func (inv Inventory) addTables(family corev1.IPFamily, steady func(func() error) error) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("tables of nf_tables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(subject.TableFamily(family))
	if missing(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s tables of nf_tables: %w", family, err)
	}
	reader, err := kernel.OpenNftables()
	if err != nil {
		return err
	}
	defer reader.Close()
	for _, table := range tables {
		if !slices.ContainsFunc(subject.All(), func(s subject.Spec) bool { return slices.Contains(s.Tables, table.Name) }) {
			continue
		}
		var tally kernel.NftTally
		if err := steady(func() (err error) { tally, err = reader.Tally(family, table.Name); return err }); err != nil {
			return err
		}
		inv[Thing{Tables, "nf_tables", family, table.Name}] = tally.Rules
	}
	return nil
}

// missing reports whether the kernel lacks what was asked for.
func missing(err error) bool {
	causes := []error{unix.ENOENT, unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.EINVAL, fs.ErrNotExist}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// addFlows adds the conntrack entries with a translated destination.
func (inv Inventory) addFlows(family corev1.IPFamily) error {
	of := netlink.InetFamily(unix.AF_INET)
	if family == corev1.IPv6Protocol {
		of = unix.AF_INET6
	}
	flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, of)
	if err != nil && !missing(err) {
		return fmt.Errorf("%s conntrack entries: %w", family, err)
	}
	for _, flow := range flows {
		to, by := flow.Forward, flow.Reverse
		if to.DstIP.Equal(by.SrcIP) && to.DstPort == by.SrcPort {
			continue
		}
		name := fmt.Sprint(net.JoinHostPort(to.SrcIP.String(), fmt.Sprint(to.SrcPort)), " ", net.JoinHostPort(to.DstIP.String(), fmt.Sprint(to.DstPort)))
		inv[Thing{Flows, protocolName(to.Protocol), family, name}] = 0
	}
	return nil
}

func protocolName(number uint8) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "TCP"
	case unix.IPPROTO_UDP:
		return "UDP"
	}
	return fmt.Sprintf("protocol %d", number)
}

// addSets adds the sets of ipset that kube-proxy names.
func (inv Inventory) addSets() error {
	req := nl.NewNetlinkRequest(nl.IPSET_CMD_LIST|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, onlyNames)))
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if err != nil && !missing(err) {
		return fmt.Errorf("list ipsets: %w", err)
	}
	for _, message := range messages {
		for a := range attr.All(message[min(nl.SizeofNfgenmsg, len(message)):], &err) {
			if a.Type == nl.IPSET_ATTR_SETNAME && strings.HasPrefix(a.Text(), "KUBE-") {
				inv[Thing{Kind: Sets, Table: "ipset", Name: a.Text()}] = 0
			}
		}
	}
	return nil
}

// onlyNames is IPSET_FLAG_LIST_SETNAME: a list without the elements of the sets.
const onlyNames = 1 << 1

// addServers adds the virtual servers of IPVS.
func (inv Inventory) addServers(families []corev1.IPFamily) error {
	if visible.HasIPVS() != nil {
		return nil
	}
	for _, family := range families {
		names, err := visible.VirtualServers(family)
		if err != nil {
			return err
		}
		for _, name := range names {
			inv[Thing{Servers, "IPVS", family, name}] = 0
		}
	}
	return nil
}

// addDevice adds kube-ipvs0 and its addresses.
func (inv Inventory) addDevice(families []corev1.IPFamily) error {
	link, err := netlink.LinkByName(ipvsDevice)
	var absent netlink.LinkNotFoundError
	if errors.As(err, &absent) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("device %s: %w", ipvsDevice, err)
	}
	inv[Thing{Kind: Devices, Table: "type dummy", Name: ipvsDevice}] = 0
	for _, family := range families {
		of := netlink.FAMILY_V4
		if family == corev1.IPv6Protocol {
			of = netlink.FAMILY_V6
		}
		addrs, err := netlink.AddrList(link, of)
		if err != nil {
			return fmt.Errorf("addresses of %s: %w", ipvsDevice, err)
		}
		for _, addr := range addrs {
			if !addr.IP.IsLinkLocalUnicast() {
				inv[Thing{Addresses, ipvsDevice, family, addr.IP.String()}] = 0
			}
		}
	}
	return nil
}

// Left counts the things that both inventories have and that the new subject does not use, by text: "chains of iptables-nft
// nat". Conntrack entries are those that both have: no subject owns them.
func Left(before, after Inventory, to subject.Spec) map[corev1.IPFamily]map[string]int {
	left := map[corev1.IPFamily]map[string]int{}
	for thing, rules := range after {
		if _, was := before[thing]; !was || uses(to, thing) {
			continue
		}
		if left[thing.Family] == nil {
			left[thing.Family] = map[string]int{}
		}
		left[thing.Family][thing.Kind+" of "+thing.Table]++
		if rules > 0 {
			left[thing.Family]["rules of "+thing.Table] += rules
		}
	}
	return left
}

// uses reports whether a subject uses things of that kind and name.
func uses(s subject.Spec, thing Thing) bool {
	switch thing.Kind {
	case Tables:
		return slices.Contains(s.Tables, thing.Name)
	case Chains:
		variant := strings.HasPrefix(thing.Table, "iptables-"+string(s.Variant)+" ")
		ofIPVS, onlyIPVS := owner.OfIPVS(thing.Name)
		switch s.Carrier {
		case subject.Rules:
			return variant && !onlyIPVS && !owner.OfUserspace(thing.Name)
		case subject.Relay:
			return variant && owner.OfUserspace(thing.Name)
		case subject.VirtualServers: // in the variant that its tools find
			return ofIPVS
		}
		return false
	case Sets, Servers, Devices, Addresses:
		return s.Carrier == subject.VirtualServers
	}
	return false
}
