#!/bin/sh
# What the steps of moving-to-nftables.md take at some sizes: time, and how much memory the machine had less than at the start. Each
# Service has 12 endpoints. In the repository's folder: sh docs/moving-to-nftables.sh [SERVICES...]
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
old=kube-proxy/iptables-nft new=kube-proxy/nftables

available() { awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo; }

# Prints a row of the table, and the step's own output on stderr.
step() {
	name=$1
	shift
	before=$(available) least=$before begin=$(date +%s) how=done
	"$@" >&2 &
	while kill -0 $! 2>/dev/null; do
		now=$(available)
		[ "$now" -ge "$least" ] || least=$now
		sleep 1
	done
	wait $! || how="exit status $?"
	took=$(($(date +%s) - begin))
	echo "| $name | $services | $((took / 60)) min $((took % 60)) s | $((before - least)) MiB | $how |"
}

echo "| step | Services | time | memory | end |"
echo "| --- | --- | --- | --- | --- |"
[ $# -gt 0 ] || set -- 1000
for services; do
	size="--services $services --endpoints 12"
	# shellcheck disable=SC2086 # a list of words on purpose
	{
		step "does it do the same (migrate)" bin/synclab migrate $size --reps 1 --max-time 15m --from $old --to $new --out "$dir/migrate-$services"
		step "what does it cost (compare)" bin/synclab compare $size --reps 1 --max-time 15m --subjects $old,$new --out "$dir/compare-$services"
		step "how far can it grow (plan)" bin/synclab plan $size --churn 10 --budget 10m --today $old --subjects $old,$new --fresh --out "$dir/plan-$services"
	}
done
