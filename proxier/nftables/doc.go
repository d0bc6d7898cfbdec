// Package nftables is the nftables backend. It keeps one table of nf_tables for each IP family in the state that a plan
// describes, over netlink. A constant number of sets and maps serves all Services. See docs/design/nftables-table.md
// for the path of a packet, the kernel's costs, what packets see during a commit, and the nft command.
//
// The way of the data:
//
//  1. Ruleset takes the changes of the plan (Update) and stores what is installed.
//  2. It writes transactions to a writer. One writer is the encoder, which appends netlink messages to a buffer. The
//     other is Model, the same table in memory (package objects), which the ruleset evaluator compiles.
//  3. The socket sends each batch to the kernel with one sendmsg and reads the answer.
//  4. Backend decides between a partial and a full sync, and recovers when the kernel refuses rules.
//
// Reader looks up one Service port in the kernel's table.
//
// # What is not modelled
//
//   - Two Service ports with the same ID, which has 64 bits. The second one is refused with an error, until it changes
//     or a full sync follows the removal of the first one.
//   - A frontend that more Service ports share than mostClaims. The next one is refused in the same way.
//   - Counters of nfacct (Settings.Accounting).
//   - A shorter affinity timeout for clients one by one. Clients that would be remembered for longer than the new
//     timeout are all forgotten at once. iptables would still remember some of them, by the time of their last packet.
//     To find these clients, a sync reads all remembered clients. It does not where there are more than mostLooked, or
//     where the kernel does not report how many (before Linux 6.16). Such a client keeps its time until its next
//     connection or a full sync.
package nftables
