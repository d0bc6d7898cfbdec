package iptables

import (
	"fmt"
	"reflect"

	"synclab/proxier/backend"
)

// Variant is which of the two iptables there are.
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

// Layouts are those there are; newLayout makes them.
var Layouts = []Layout{Classic, Tree}

// Table is an iptables table.
type Table = backend.Table

// The tables that the proxier writes (mangle holds only a canary).
const (
	Filter Table = "filter"
	NAT    Table = "nat"
	Mangle Table = "mangle"
)

// The names that readers of this package's rules know these types by.
type (
	Count    = backend.Count
	Run      = backend.Run
	Stamp    = backend.Stamp
	Frontend = backend.Frontend
)

// settings are the backend's, with what is spelled in iptables' words once for all rules.
type settings struct {
	backend.Settings
	// ifLocal and ifNotLocal are the match of traffic from pods, and its inverse; nil: not known.
	ifLocal, ifNotLocal []string
	// flat: chains of Services translate by themselves, and one rule for all masquerades what an endpoint sends to itself.
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
