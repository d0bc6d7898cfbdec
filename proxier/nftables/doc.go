// Package nftables is the nftables backend: it keeps one table of nf_tables a family as a plan wants it, over netlink.
//
// # The table
//
// There is a constant number of sets and maps, and no chain per ordinary Service. A packet's way through the nat hooks:
//
//  1. frontends: destination address . protocol . port → class. (nodeports: protocol . port → class, tried last, for
//     addresses of the node.) A Class says what kind of frontend it is, how many endpoints it has, and for how long its
//     clients are remembered. All frontends that are alike in that share one.
//  2. classes: class → jump to its chain, such as cluster-10 or external-local-10-2-10800s.
//  3. lists: destination address . protocol . port . class → ID of the Service port.
//  4. endpoints: ID . number → address . port. The chain draws the number, from 0 up to the class's count. Where there
//     is a choice of policy, the endpoints of this node have a list of their own, which begins at localSlots.
//  5. affinity: client . ID → a word . address . port, written by the rules, and members: ID . list . address . port,
//     which says whether that endpoint is still one of them.
//  6. hairpin, after the translation: address . the same address, of every endpoint. Whoever reaches himself is
//     masqueraded, and so is whoever carries the masquerade mark.
//
// An endpoint is an element of endpoints and one of hairpin, whatever the number of addresses that lead to it. Changing
// one touches nothing else while the number of endpoints stays.
//
// A frontend that several Services claim, or that only some sources may use, has a class and a chain to itself, which
// jumps to the chains of the classes of its claims, the oldest Service's first. What a chain does not take comes back.
//
// The filter hooks refuse what has nowhere to go, as KUBE-SERVICES, KUBE-EXTERNAL-SERVICES, KUBE-PROXY-FIREWALL and
// KUBE-NODEPORTS of layout classic do: refused-services, refused-external, refused-nodeports (→ number in refusals →
// verdict), firewall, health-checks. Verdicts are those of layout classic, with one difference that lies in nf_tables:
// accepting a packet ends only this table's chain, and does not keep another table from dropping it.
//
// To look up one Service port see Reader. bench/visible does. Fields of keys and values each begin at a multiple of 4
// bytes; numbers of endpoints are in the machine's byte order, as numgen leaves them in a register, all else is in the
// network's.
//
// # The way of the data
//
//  1. Ruleset takes what the plan changed (Update), and knows what is installed.
//  2. Its transactions go to a writer. One is the encoder, which appends netlink messages to a buffer; the other is
//     Model, the same table in memory, which the rule interpreter walks.
//  3. The socket hands each batch to the kernel with one sendmsg, and reads the answer.
//  4. Backend decides between a partial and a full sync, and recovers when the kernel refuses.
//
// # What costs
//
// Facts about the kernel (read in and measured on Linux 6.18) that shape all this:
//
//   - A new element with a verdict that jumps makes the commit validate the table: every chain that a base chain
//     reaches, element by element through verdict maps. So frontends holds classes, not verdicts, and classes is small.
//   - The first rule of a chain that uses a map makes the kernel walk through the whole map, of verdicts or not,
//     looking for loops (nf_tables_bind_set): some 100 ms where there are half a million endpoints. So chains of
//     classes are made while a table is loaded, before its elements, and with them those of a few endpoints more or
//     less than Services have. A class that is met later costs that walk once. Its chain stays when it is not used any
//     more, until there are thousands of such (idleClasses).
//   - A set is found by name in a linear search, and an anonymous set costs every transaction that follows.
//   - A set with a size is a hash table that never grows, without one it is one that does. Ours grow.
//   - Removing and adding the same key in one transaction replaces the element.
//
// # What a packet may see
//
// A look into a set or a map is answered by the kernel's generation of that moment, and a packet on its way during a
// commit may have read frontends before and endpoints after it. Of a chain's rules it meets those of before or those of
// after; after these, only sets as they are after. In a hook it must find what was wanted before, or what is wanted
// now. Hence:
//
//   - A chain that is new is empty for packets that entered before the commit. So it is made, with its element in
//     classes, in a transaction before the one whose elements lead to it (Ruleset.Partial).
//   - What a packet was told remains true: lists is asked with the class, so that a class of before finds the Service
//     port of before. Where several Services claim a frontend, variants of classes keep them apart (slot.setVariants). Only
//     where nothing but the Service port behind a class changed does it find the new one, with all its endpoints.
//   - A number that was drawn finds an endpoint. When a Service port has fewer endpoints, the slots beyond the new
//     end stay filled, with the endpoints that were there. Slots below it hold one of before or of now.
//   - Hence elements that a packet gets to only through another one (lists, endpoints, hairpin, chains of single
//     frontends) are removed one sync later than what led to them. That leftover is bounded by what one sync removes.
//
// Two things are weaker. A client whose memory is torn (its endpoint is no member any more, but the class is that of
// before) gets any of the endpoints. And the filter hooks come after nat: a packet that passed nat just before a
// Service got its first endpoint may miss the refusal as well, and goes on untranslated, as with iptables, whose tables
// are committed one by one.
//
// This assumes that no packet stays between two looks while two syncs pass. Packets are not suspended there, and syncs
// are at least the runner's interval apart.
//
// A full sync loads a table of the other name (tableNames), in transactions of bounded size, while the old one works.
// As it has no base chains, no packet meets it. Then one short transaction adds these, and a second one deletes the old
// table. In between, packets meet the new table first: what it takes has its translation, and what it does not take is
// as it was before. Clients that are remembered are copied, since an ID is a hash of the Service port's name.
//
// # The nft command
//
// Whoever uses nft on the host, a firewall for one, has it read the rules of all tables. nft 1.0.6 aborts at one in
// which what a map gives is part of the next map's key, even of "nft list tables": to nft it has length 0
// (map_expr_alloc, netlink_parse_concat_expr). To nft a register holds what was loaded into that very one, whatever
// longer value came to lie over it. So values that the next key begins with have a blank in front, a word of 0: nft takes
// note of the map there, and finds in the words of the key what was loaded before. That costs a word for each frontend,
// list and refusal, and no expression:
//
//	frontends  gives blank . class over protocol and port, printed as "meta l4proto . th dport vmap @classes"
//	lists      gives blank . ID over the class, printed as "CLASS . numgen random mod 3 map @endpoints"
//	refused-…  give blank . number over the port, printed as "th dport vmap @refusals"
//
// With affinity, targets have zeros under them for the same reason, and the value of affinity begins with a word that
// says nothing. TestNftCommand has nft print everything. What it prints is for people: not all of it is true, and
// "nft -f" does not take it.
//
// # What is not modelled
//
// An ID has 64 bits: should two Service ports have the same, the second is refused with an error, until it changes or
// everything is written anew after the first one is gone.
//
// A frontend that very many Service ports share (mostClaims) is refused to the next one, in the same way.
//
// Counters of nfacct (Settings.Accounting) have no counterpart.
//
// When an affinity timeout gets shorter, clients that would be remembered for longer are forgotten at once, all of them,
// also whom iptables would still remember by the time of his last packet. That takes a look at all that are remembered,
// so it is left undone where there are more than mostLooked, or where the kernel does not say how many (before Linux
// 6.16): then such a client keeps his time until his next connection, or until everything is written anew.
//
// # Why not a library
//
// Expressions are those of github.com/google/nftables; its connection is not used. It makes a tree of attributes of
// each element, has every message acknowledged, and puts all elements of a call into one message, whose length has 16
// bits: half a million take chunks and a buffer that is kept. sigs.k8s.io/knftables (v0.0.22) only lists over netlink,
// and writes through the nft command.
package nftables
