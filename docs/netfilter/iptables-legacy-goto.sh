#!/bin/sh
# How long iptables-legacy-restore takes for the rules of kube-proxy, with -j and with -g to the chains of endpoints, in two
# orders of chains. As root: sh iptables-legacy-goto.sh [SERVICES [ENDPOINTS [ROUNDS]]]
set -eu
services=${1:-10000} endpoints=${2:-10} rounds=${3:-5}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Names are hashes, as kube-proxy's are: 16 characters in no order.
awk -v services="$services" -v endpoints="$endpoints" '
	function name(prefix, n,  i, s) {
		s = prefix
		for (i = 0; i < 16; i++) { n = (n * 1103515245 + 12345) % 2147483648; s = s substr("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", int(n / 65536) % 32 + 1, 1) }
		return s
	}
	BEGIN {
		for (i = 1; i <= services; i++) {
			svc = name("KUBE-SVC-", i)
			print "KUBE-SERVICES\t-d 10." 96 + int(i / 65536) "." int(i / 256) % 256 "." i % 256 "/32 -p tcp -m tcp --dport 80 -j " svc
			for (e = 0; e < endpoints; e++) {
				k = (i - 1) * endpoints + e
				sep = name("KUBE-SEP-", 7919 + k * 131)
				ip = "10." 128 + int(k / 65536) % 64 "." int(k / 256) % 256 "." k % 256
				random = e < endpoints - 1 ? sprintf("-m statistic --mode random --probability %.10f ", 1 / (endpoints - e)) : ""
				print svc "\t" random "-j " sep
				print sep "\t-s " ip "/32 -j KUBE-MARK-MASQ"
				print sep "\t-p tcp -m tcp -j DNAT --to-destination " ip ":8080"
			}
		}
	}' > "$dir/rules"

# input ORDER: the chains in the order of the names on standard input, each with its rules.
input() {
	{ echo '*nat'; echo ':KUBE-SERVICES - [0:0]'; echo ':KUBE-MARK-MASQ - [0:0]'; sed 's/.*/:& - [0:0]/' "$1"
	  echo '-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000'
	  awk -F '\t' 'NR == FNR { rules[$1] = rules[$1] "-A " $1 " " $2 "\n"; next } { printf "%s", rules[$0] } END { printf "%s", rules["KUBE-SERVICES"] }' "$dir/rules" "$1"
	  echo COMMIT; } > "$2"
}
awk -F '\t' '$1 != "KUBE-SERVICES" && !seen[$1]++ { print $1 }' "$dir/rules" > "$dir/mixed"
LC_ALL=C sort "$dir/mixed" > "$dir/sorted"
for order in mixed sorted; do
	input "$dir/$order" "$dir/$order-j"
	sed 's/-j KUBE-SEP-/-g KUBE-SEP-/' "$dir/$order-j" > "$dir/$order-g"
done

measure() { # user and system time of one restore in a new namespace, in seconds
	unshare -n bash -c 'TIMEFORMAT="%U %S"; time iptables-legacy-restore --noflush < "$1"' - "$1" 2>&1
}
for round in $(seq "$rounds"); do
	for order in mixed sorted; do
		for how in j g; do measure "$dir/$order-$how" >> "$dir/times-$order-$how"; done
	done
done

median() { sort -n | awk '{ v[NR] = $1 } END { printf "%.2f s (%.2f to %.2f)", v[int((NR + 1) / 2)], v[1], v[NR] }'; }
echo "| order of chains | jump | user time: median (range) of $rounds rounds | system time |"
echo '| --- | --- | --- | --- |'
for order in mixed sorted; do
	for how in j g; do
		echo "| $order | -$how | $(cut -d ' ' -f 1 "$dir/times-$order-$how" | median) | $(cut -d ' ' -f 2 "$dir/times-$order-$how" | median) |"
	done
done
