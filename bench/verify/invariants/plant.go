package invariants

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/subject"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/kernel/attr"
	"synclab/sim"
)

// Plant writes the sentinels into this thread's namespace: rules, flows, and a table of nf_tables if the kernel has it.
// Rules need a variant, whose tools write them. objects are the cluster's current objects.
func Plant(ctx context.Context, variant iptables.Variant, families []corev1.IPFamily, objects *sim.Objects) (*Sentinels, error) {
	if err := netns.Guard(); err != nil {
		return nil, fmt.Errorf("sentinels: %w", err)
	}
	s := &Sentinels{
		Rules: map[corev1.IPFamily]map[string][]PlantedRule{}, Nft: map[corev1.IPFamily][]string{}, Flows: map[corev1.IPFamily][]conntrack.Flow{},
	}
	for _, family := range families {
		if variant != "" {
			s.Rules[family] = map[string][]PlantedRule{}
			for table := range foreignHooks {
				if err := s.PlantTable(ctx, variant, family, table); err != nil {
					return nil, err
				}
			}
		}
		if err := s.plantNft(family); err != nil {
			return nil, err
		}
		if err := s.plantFlows(family, objects); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// PlantTable writes the rules of one family and table. It is called again after a fault flushed the table.
func (s *Sentinels) PlantTable(ctx context.Context, variant iptables.Variant, family corev1.IPFamily, table string) error {
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("sentinels: %w", err)
	}
	rules := foreignRules(family, table)
	if rules == nil {
		return nil
	}
	path, err := iptables.FindBinary(iptables.Binary(variant, family, "restore"))
	if err != nil {
		return fmt.Errorf("sentinels: %w", err)
	}
	cmd := exec.CommandContext(ctx, path, append(iptables.LockWait(variant), "--noflush", "--counters")...)
	cmd.Stdin = strings.NewReader(payload(table, rules))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("sentinels: %s table %s: %s: %w: %s", family, table, path, err, strings.TrimSpace(string(out)))
	}
	// ip6tables-nft-restore 1.8.9 accepts counters and ignores them: the counters read back are the expected ones.
	saved, err := Save(ctx, variant, family, "-t", table)
	if err != nil {
		return fmt.Errorf("sentinels: %w", err)
	}
	for i := range rules {
		if c := saved[table][rules[i].Chain]; c != nil {
			if at := slices.IndexFunc(c.Rules, rules[i].equal); at >= 0 {
				rules[i].Counters = c.Rules[at].Counters
			}
		}
	}
	s.Rules[family][table] = rules
	return nil
}

// foreignTableName is the sentinels' table of nf_tables. foreignSet and foreignBase are its set and its base chain.
const (
	foreignTableName = "foreign"
	foreignSet       = "ports"
	foreignBase      = "forward"
)

// plantNft makes a table with a base chain, a set and a rule that counts. On a kernel without nf_tables it does
// nothing.
func (s *Sentinels) plantNft(family corev1.IPFamily) error {
	conn, err := nftables.New()
	if err != nil {
		return fmt.Errorf("sentinels: nf_tables: %w", err)
	}
	table := conn.AddTable(&nftables.Table{Family: subject.TableFamily(family), Name: foreignTableName})
	set := &nftables.Set{Table: table, Name: foreignSet, KeyType: nftables.TypeInetService}
	if err := conn.AddSet(set, []nftables.SetElement{{Key: []byte{0, 7}}}); err != nil {
		return fmt.Errorf("sentinels: nf_tables: %w", err)
	}
	chain := conn.AddChain(&nftables.Chain{
		Table: table, Name: foreignBase, Type: nftables.ChainTypeFilter,
		Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityRef(unforeseenPriority),
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{noProtocol}},
		&expr.Counter{Packets: 7, Bytes: 700},
	}})
	if err := conn.Flush(); err != nil {
		if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP) {
			return nil
		}
		return fmt.Errorf("sentinels: nf_tables: %w", err)
	}
	s.Nft[family], err = ForeignNft(family)
	return err
}

const (
	unforeseenPriority = -7
	noProtocol         = 253 // reserved for experiments (RFC 3692), so no host sends it
)

// ForeignNft lists the objects of the sentinels' table. Any change of an object changes its text.
func ForeignNft(family corev1.IPFamily) ([]string, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("sentinels: nf_tables: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(subject.TableFamily(family))
	if err != nil {
		return nil, fmt.Errorf("sentinels: nf_tables: %w", err)
	}
	var found []string
	for _, table := range tables {
		if table.Name != foreignTableName {
			continue
		}
		found = append(found, "table "+table.Name)
		chain := &nftables.Chain{Table: table, Name: foreignBase}
		rules, err := conn.GetRules(table, chain)
		if err != nil {
			return nil, fmt.Errorf("sentinels: nf_tables: %w", err)
		}
		for _, rule := range rules {
			text := fmt.Sprintf("rule %d", rule.Handle)
			for _, e := range rule.Exprs {
				if counter, ok := e.(*expr.Counter); ok {
					text += fmt.Sprintf(" with counter [%d:%d]", counter.Packets, counter.Bytes)
				}
			}
			found = append(found, text)
		}
		set, err := conn.GetSetByName(table, foreignSet)
		if err != nil {
			continue
		}
		elements, err := conn.GetSetElements(set)
		if err != nil {
			return nil, fmt.Errorf("sentinels: nf_tables: %w", err)
		}
		for _, element := range elements {
			found = append(found, fmt.Sprintf("element %x of set %s", element.Key, set.Name))
		}
	}
	return found, nil
}

// flowSeconds is the timeout of the sentinels' flows: longer than any run.
const flowSeconds = 24 * 60 * 60

// plantFlows makes a flow between two addresses of no host. It makes another flow to an outside host, with the port
// number of a UDP Service's NodePort (docs/differences.md, foreign-flows).
func (s *Sentinels) plantFlows(family corev1.IPFamily, objects *sim.Objects) error {
	ports := []uint16{5353}
	for _, svc := range objects.Services {
		for _, p := range svc.Spec.Ports {
			if p.Protocol == corev1.ProtocolUDP && p.NodePort != 0 && len(ports) == 1 {
				ports = append(ports, uint16(p.NodePort))
			}
		}
	}
	for i, port := range ports {
		f := conntrack.Flow{
			Src: netip.AddrPortFrom(netip.MustParseAddr(foreignFrom[family]), uint16(40007+i)),
			Dst: netip.AddrPortFrom(netip.MustParseAddr(foreignTo[family]), port),
		}
		f.ReplySrc, f.ReplyDst = f.Dst, f.Src
		if err := PlantFlow(family, f); err != nil {
			return err
		}
		s.Flows[family] = append(s.Flows[family], f)
	}
	return nil
}

// Assured is the status of a confirmed entry that has seen a reply (include/uapi/linux/netfilter/nf_conntrack_common.h). When the
// kernel needs room, it drops entries that are not assured.
const Assured = 1<<1 | 1<<2 | 1<<3

// PlantFlow makes a UDP entry of the conntrack table. The source of replies may be any endpoint.
func PlantFlow(family corev1.IPFamily, f conntrack.Flow) error {
	protocol := unix.AF_INET
	if family == corev1.IPv6Protocol {
		protocol = unix.AF_INET6
	}
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_NEW, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: uint8(protocol), Version: nl.NFNETLINK_V0})
	req.AddRawData(AppendTuple(AppendTuple(nil, nl.CTA_TUPLE_ORIG, f.Src, f.Dst), nl.CTA_TUPLE_REPLY, f.ReplySrc, f.ReplyDst))
	req.AddData(nl.NewRtAttr(nl.CTA_STATUS, nl.BEUint32Attr(Assured)))
	req.AddData(nl.NewRtAttr(nl.CTA_TIMEOUT, nl.BEUint32Attr(flowSeconds)))
	if _, err := req.Execute(unix.NETLINK_NETFILTER, 0); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("conntrack entry %v -> %v: %w", f.Src, f.Dst, err)
	}
	return nil
}

// AppendTuple encodes one direction of a UDP entry.
func AppendTuple(b []byte, kind uint16, from, to netip.AddrPort) []byte {
	source, destination := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
	if from.Addr().Is6() {
		source, destination = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	return attr.Nest(b, kind, func(b []byte) []byte {
		b = attr.Nest(b, nl.CTA_TUPLE_IP, func(b []byte) []byte {
			b = attr.Append(b, source, from.Addr().AsSlice())
			return attr.Append(b, destination, to.Addr().AsSlice())
		})
		return attr.Nest(b, nl.CTA_TUPLE_PROTO, func(b []byte) []byte {
			b = attr.Append(b, nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP})
			b = attr.Append(b, nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, from.Port()))
			return attr.Append(b, nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, to.Port()))
		})
	})
}

// Flows returns the UDP entries of the conntrack table in this thread's namespace.
func Flows(ctx context.Context, family corev1.IPFamily) ([]conntrack.Flow, error) {
	flows := []conntrack.Flow{}
	_, err := conntrack.NewKernel(vishnetns.None()).DeleteUDP(ctx, family, func(f conntrack.Flow) bool {
		flows = append(flows, f)
		return false
	})
	return flows, err
}

// Save reads the tables of iptables with their counters, with the variant's tool. Arguments "-t" and a name select one
// table. If there are no tables, the tool prints nothing.
func Save(ctx context.Context, variant iptables.Variant, family corev1.IPFamily, args ...string) (Saved, error) {
	path, err := iptables.FindBinary(iptables.Binary(variant, family, "save"))
	if err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, path, append([]string{"-c"}, args...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	tables, err := rule.ParseTables(family, out)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return Saved(tables), nil
}
