// Package direct hands the legacy tables of iptables to the kernel itself, without a tool: the payload that
// iptables-restore would read becomes the kernel's own block of entries and goes through one socket option a table. It
// is the floor of the legacy variant, where every change replaces the whole table: what the kernel needs for that, and
// little more.
//
// The way of the data, for each table of a payload:
//
//  1. Lock takes the xtables lock, as the tools do, and waits for it as long as they would.
//  2. Read copies the table out of the kernel (package xtables), into memory that Go does not manage.
//  3. Index walks over it once: its chains, and the rules that hold the offset of another.
//  4. Edit reads the payload's lines and sorts them by chains: those that are new, emptied, deleted, or get rules more.
//  5. Splice writes the new table, the chains by name, as iptables orders them. Chains that the payload does not name
//     are copied as they are, whoever made them; the rules of the others are encoded from their lines. It does so in
//     the memory in front of the old table and, as far as that was read, of the old table itself: there is one table
//     in memory, not two.
//  6. Resolve puts offsets in place of the numbers of chains, and finds rules that refer to deleted ones.
//  7. Commit replaces the table: at once for all packets, or not at all. The kernel answers with the counters of the
//     old one; those of the rules that stayed are added to the new one's, which began at zero.
//  8. What was handed over is kept, so that the next sync need not read it: reading costs the kernel nearly as much as
//     replacing. A pad in the table's last entry tells whether the kernel still holds what we handed over (see nextPad);
//     if not, it is read.
//
// The payload is read strictly: exactly the words that package iptables writes, in its order (addresses, interface and
// protocol, matches with their options, and the target last). Any other word is an error that names the line, and so
// its owner. The kernel names no line: what it refuses is the COMMIT's fault.
//
// # Sizes and alignment
//
// A rule is an entry (112 bytes in IPv4, 168 in IPv6), matches and one target, each with a header of 32 bytes in front
// and filled up to a multiple of 8. u16 target_offset and next_offset in the entry say where its target is, and where it
// ends. Numbers are the host's, addresses and the ports that packets are translated to the network's. The kernel checks
// that the size of every match and target is the one it knows. Bytes of what follows the header, and the revision:
//
//	comment    256      the text, ending in zero
//	tcp, udp   12, 10   u16 source ports[2], destination ports[2]; then the inversions: at 11, at 8
//	sctp       292      u16 destination ports[2], source ports[2]; u32 what is asked for, and inversions: at 284, 288
//	addrtype   8   (1)  u16 source, destination types (LOCAL: 4); u32 inversions
//	conntrack  164 (3)  u16 what is asked for, inversions, states: at 146
//	mark       12  (1)  u32 mark, mask; u8 inversion
//	statistic  24       u16 mode, flags; u32 probability in units of 2^-31; 8 bytes of the kernel's at the end
//	recent     228 (1)  u32 seconds, hits; u8 what to do, inversion; name[200]; u8 side; 16 bytes of mask at 212
//	nfacct     40 (0,1) name[32]; 8 bytes of the kernel's
//	bpf        528 (1)  u16 mode (bytecode: 0), instructions, s32 file; instructions[64] of u16, u8, u8, u32; 8 bytes of
//	                    the kernel's; revision 0, of older kernels: u16 instructions, then the same at 4
//	verdict    4        a target without a name: below zero the end of the walk, else the offset to go on at
//	ERROR      30       the head of a user chain: its name
//	REJECT     4        u32 what to answer
//	MARK       8   (2)  u32 mark, mask
//	MASQUERADE 20, 40   IPv4: u32 number of ranges, flags, ...; IPv6: u32 flags, ...
//	DNAT       42  (2)  u32 flags; addresses[2] of 16 bytes; u16 ports[3]; older kernels have 20 (0) and 40 (1)
//
// A user chain is a head, its rules and a foot that returns: 176 + rules + 152 bytes in IPv4.
//
// # What is not modelled
//
// Rules that the proxier does not write: they are kept, whatever they are, but not made. Tables whose chains share
// rules or end without a return, which the socket option allows and no iptables writes, are left alone with an error.
// The kernel counts packets for rules that stay from zero between the replacement and the addition of the old
// counters, as with every iptables-legacy.
package direct
