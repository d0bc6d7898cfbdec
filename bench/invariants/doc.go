// Package invariants looks whether a subject keeps what every Service proxy promises, whatever happened to it: thirteen
// invariants, I1 to I13, each with a checker of its own. The way of the data:
//
//  1. Before the subject starts, Plant writes sentinels: foreign rules with counters in each table, a foreign table of
//     nf_tables, and flows of nobody's Service.
//  2. When everything has settled, the lab gathers Evidence: the objects of the cluster, the node, the settings; the
//     tables of the kernel (Save, ReadNft, walk.ReadNftables), the UDP entries of the conntrack table (Flows), what the
//     subject says of itself in /healthz and /metrics, what real flows met.
//  3. A fresh proxier renders the same objects into models of the tables (expected), and the plan says what each Service
//     port is to do. Where a checker asks what rules do, the rule interpreter walks packets through the kernel's rules.
//  4. Check runs the checkers, and gives for each how much was looked at, and Findings. Nothing looked at is a violation
//     where the subject and the objects say that something was due (due.go). All but step 1 and 2 is pure: tests hand the
//     checkers broken evidence, and each must notice.
//
// Which invariant is looked at, and how:
//
//	     synclab, iptables      synclab/nftables     kube-proxy, iptables   kube-proxy/nftables    exec:…
//	I1   rule for rule          element by element   as package conform     -                      -
//	I2   every verdict          every verdict        endpoints of packets   endpoints of packets¹  -
//	I3   every verdict          every verdict        endpoints of packets   endpoints of packets¹  -
//	I4   packets, and one sent  the same             the same               the same               -
//	I5   tables are whole³      -                    failed restores³       -                      -
//	I6   all: in sync within two sync periods and 10 s, without any change of the cluster
//	I7   rules, nf_tables       nf_tables            rules, nf_tables       nf_tables              nf_tables
//	I8   own chains             leftover elements    own chains²            -                      -
//	I9   all: UDP flows in the conntrack table, and the sentinels'
//	I10  shares, probabilities  shares               shares, probabilities  shares                 flows of a stream
//	I11  all but exec:… must serve /healthz
//	I12  gauges, failures       failures, pending    gauges, failures       failures, pending      what it has
//	I13  content, UDP flows     content, UDP flows   content, UDP flows     UDP flows              -
//
//	¹ at cluster IPs, external addresses, and at the node's main address: docs/differences.md says what else differs.
//	² not beyond 1,000 endpoints, where kube-proxy cleans up once a sync period, and only when it syncs anyhow.
//	³ of restores that failed, those before and after which the lab could read the tables while nobody wrote: where faults
//	  make restores of a tool fail. Where there are none, and tables are not the lab's own proxier's, it is not looked at.
//
// Misrouted, failed and held flows of a traffic stream count for I2, I3, I9 and I10 where there was one (Traffic).
//
// Not modelled: I5 of a restore after which another one came at once, or whose tables are those of nf_tables, which have no
// in-between; what a restore was to make of the tables where objects changed less than a second before; counters of the subject's own rules, which a full sync after a restart begins anew; a gap in the middle of a restart,
// which the traffic stream sees; TCP entries of the conntrack table. iptables-nft-save needs minutes for 100,000 chains, so
// this is for small clusters.
package invariants
