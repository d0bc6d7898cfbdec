// Package iptables is the iptables backend: it turns a plan into chains and rules and hands them to the kernel, through
// iptables-restore in its legacy and its nft variant or itself (package direct), for IPv4 and IPv6.
//
// The way of the data:
//
//  1. Render (render.go) makes the rules of one planned Service port: its chains, and its lines in the dispatch.
//  2. A layout (layout.go) decides which dispatch chains there are and which lines stand in each. Classic is, rule for
//     rule, what kube-proxy 1.37 installs; only the order of Services is ours (see plan). Tree finds a Service over
//     chains on prefixes of addresses, and is flat where the kernel has match bpf (below).
//  3. A Ruleset keeps what is wanted and what is installed; its difference is the chains whose text is another than what
//     the kernel is known to hold, compared by hash, and the chains that are to go.
//  4. A stager brings the difference to the kernel, payload by payload, each of whose lines is somebody's.
//  5. Tables take a payload: Host runs iptables-restore with a lock wait, a deadline and an account of its time and
//     memory; package direct replaces the legacy tables itself; Model keeps tables in memory. What is refused is isolated
//     (isolate.go): first matches that the machine may not have after all, then Service ports.
//
// A chain that is not written again keeps the counters of its rules.
//
// # Flat chains of Services
//
// In layout classic each endpoint of a Service port has a chain, for two rules: one marks what the endpoint sends to
// itself, to be masqueraded, the other translates. These chains are most of what the kernel, the tool and the proxier have
// to take. A flat chain of a Service translates by itself. What an endpoint sends to itself is recognized afterwards, by
// one rule for all: a translated packet whose two addresses are the same, which match bpf can tell (fixed.go). It stands
// in nat KUBE-POSTROUTING, and since such a packet has no mark, in filter KUBE-FORWARD too. Service ports with affinity
// keep the chains of their endpoints, whose names match recent remembers clients by. Somebody else's translated packets
// whose two addresses are the same are masqueraded as well: without it no answer would find back.
//
// # What a packet meets while a sync is under way
//
// The kernel takes a payload table by table: each COMMIT at once, one after the other. A packet crosses the rules of one
// base chain in one state (nf_tables reads its generation when it enters, legacy holds the table); it meets nat first and
// filter afterwards. Claim: whichever COMMIT was the last, a packet that then crosses all its rules gets the verdict that
// it got before the sync or the one that it gets after it. Why:
//
//  1. Fresh chains are chains that no packet reaches: they were not there, a sync that failed before its switch left
//     them, or no line of the dispatch leads to their Service port. Writing them changes no verdict. Each batch is written
//     from the bottom up, so that what it leads to is there.
//  2. A steady Service port is one that the same lines lead to before and after, for destinations that no other Service
//     port has. Its chains lead nowhere but to one another, and are written in one COMMIT. So the verdict changes for
//     its own packets only, and from the old one to the new.
//  3. The switch writes all else that packets reach in nat, the dispatch included, in one COMMIT: before it every packet
//     but those of 2 finds the old rules of nat, after it the new ones.
//  4. What nat does not lead to an endpoint, filter refuses or lets pass. For every destination, filter must hold the new
//     lines when nat lets go of it, and the old lines until nat captures it. So there is a state between (between.go),
//     written before the first COMMIT of 2 and 3 where it differs from the old one; the new state follows where that
//     differs from it. Most often filter is written once, before nat or after it, or not at all.
//  5. Chains that are swept are reached by no packet since the switch, and go from the top down.
//  6. Whether a chain is flat is its Service port's own affair, as any change of its chains: 1 to 3 hold. But what a flat
//     chain does to packets of an endpoint to itself is right only with the rules in KUBE-POSTROUTING and KUBE-FORWARD.
//     These do nothing to what chains of endpoints translate: such packets are marked already. So the rules may come
//     earlier and stay longer than flat chains, and do. When flat chains are wanted, KUBE-FORWARD is written no later than
//     filter's state between, and KUBE-POSTROUTING before the first COMMIT of 2, or with 3. When they are not, and
//     KUBE-FORWARD in the kernel says that there may be some, KUBE-POSTROUTING is written with 3, and KUBE-FORWARD with
//     the state that follows.
//
// After a crash the same holds for whoever goes on, since what no packet reaches, what the dispatch leads to and what
// filter refuses are then read back from the kernel and not remembered: what it calls old is what is there. It sweeps
// what the crash left. So does a proxier whose own restore was killed.
//
// A difference that fits into one batch is one payload: each table is written at most once, filter at most twice, and
// what is to go goes with it. The legacy variant replaces and rewrites the whole table with every COMMIT, so it has no
// batches: 1, 2, 3 and 5 are one COMMIT.
//
// A batch that fails is given up with the sync: nothing visible happened, its chains count as fresh and are written
// again. A line that is refused is its owner's fault; tables before it were taken, nothing from there on. What was taken
// stays while it is found out whose rules are refused, and so does what an earlier process wrote as it is wanted now.
//
// # What is not promised
//
//   - A packet that is between two hooks at the moment of a COMMIT meets the old table and then the new one. That is a
//     matter of microseconds for each packet, and the same for every tool.
//   - Service ports that claim one address and port, and change within one sync: whether a packet that nat leaves over
//     before and after, by other rules, is dropped or rejected meanwhile, where one of them has no endpoints. After a
//     restart that finds old rules, any of this.
//   - Settings (masquerade mark, addresses for NodePorts) that change: each table has the old or the new ones, at most
//     one COMMIT apart.
//   - What somebody else leads to our chains.
//
// # What it costs
//
// iptables-nft-restore keeps the names that a restore mentions in a sorted list which it searches from the beginning,
// and the kernel walks all chains of a table at each commit. Hence batches (pace.go), and flat chains. The legacy tools
// read, parse and write the whole table whatever the change; package direct spares the tool's part of that.
//
// # What is not modelled
//
// Which Service ports there are and when to write them (package plan, package proxier); rules that others write, beyond
// leaving them alone; what iptables-save cannot print.
package iptables
