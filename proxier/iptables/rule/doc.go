// Package rule is the typed rule of iptables, with one parser and one spelling. A rule that iptables-save prints and the
// same rule as a proxier writes it for iptables-restore parse to equal values.
//
// The way of a rule:
//
//  1. words.go splits a line into words, by the quoting rules of iptables-restore.
//  2. parse.go reads the options of the rule itself (-s, -d, -i, -o, -p). extension.go finds the extension of every other
//     option.
//  3. fields.go turns each extension with its options into a Match or the Target. An extension without fields here, or
//     with an option without a field, becomes foreign: it has only its words, as spelled.
//  4. append.go prints a rule as iptables-save 1.8.9 does. tables.go reads and prints whole tables.
//
// # Equal rules
//
// These differences of spelling disappear: the order of options and of the target; default values; host bits; /0 and
// device +; the order of states; numbers in other bases; --or-mark and --xor-mark; quotes; rounded probabilities.
//
// The order of matches stays, because the kernel evaluates and the tools compare them in order. This includes the
// position of the comment, and of an -m tcp without ports, which also excludes fragments.
//
// # Printing
//
// Both variants of the tools print the rules of kube-proxy and Synclab alike. Parse also accepts what other versions
// print: no --mask in match recent, one space instead of two after --nfacct-name, quotes around a comment of one word.
// Two foreign spellings come back changed, and parse to an equal rule: several spaces in a row become one, and an address
// with a mask that is no prefix moves behind -p.
//
// # What is not modelled
//
// Commands other than -A; names of hosts and networks; an option for several addresses; long names of options; an implicit
// -m tcp. These are errors, or become foreign. Parse does not check what depends on the table or chain.
package rule
