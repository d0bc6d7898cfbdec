package iptables

import (
	"fmt"
	"reflect"

	"synclab/proxier/backend"
)

// Variant is one of the two variants of iptables.
type Variant string

// The variants: legacy replaces whole tables through a socket option, nft writes nf_tables over netlink.
const (
	Legacy Variant = "legacy"
	Nft    Variant = "nft"
)

// Layout is how packets find the rules of their Service.
type Layout string

// The layouts: classic has one rule after the other, as kube-proxy; tree has chains on prefixes of addresses.
const (
	Classic Layout = "classic"
	Tree    Layout = "tree"
)

// Layouts are all layouts that newLayout makes.
var Layouts = []Layout{Classic, Tree}

// Table is an iptables table.
type Table = backend.Table

// The tables that the proxier writes (mangle contains only a canary).
const (
	Filter Table = "filter"
	NAT    Table = "nat"
	Mangle Table = "mangle"
)

// Short names for types of package backend.
type (
	Count       = backend.Count
	Run         = backend.Run
	Fingerprint = backend.Fingerprint
	Frontend    = backend.Frontend
)

// settings are the backend's settings, with their words for rules prepared once.
type settings struct {
	backend.Settings
	// ifLocal and ifNotLocal are the match of traffic from pods, and its inverse; nil: unknown.
	ifLocal, ifNotLocal []string
	// flat: chains of Services translate by themselves, and one shared rule masquerades hairpin packets.
	flat bool
}

func newSettings(s backend.Settings, kind Layout) settings {
	spelled := settings{Settings: s, flat: kind == Tree && s.BPF}
	switch local := s.Local; {
	case local.Source.IsValid():
		spelled.ifLocal = []string{"-s", local.Source.String()}
	case local.Interface != "":
		spelled.ifLocal = []string{"-i", local.Interface}
	case local.InterfacePrefix != "":
		spelled.ifLocal = []string{"-i", local.InterfacePrefix + "+"}
	default:
		return spelled
	}
	spelled.ifNotLocal = append([]string{"!"}, spelled.ifLocal...)
	return spelled
}

func (s *settings) equal(other backend.Settings) bool { return reflect.DeepEqual(s.Settings, other) }

// mark is the masquerade mark as kube-proxy writes it.
func (s *settings) mark() string { return fmt.Sprintf("%#08x", 1<<s.MasqueradeBit) }

// The names of the nfacct objects.
const (
	AccountInvalid        = "ct_state_invalid_dropped_pkts"
	AccountLocalNodePorts = "localhost_nps_accepted_pkts"
)
