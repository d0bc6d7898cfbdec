#!/bin/sh
# What the steps of moving-to-nftables.md take at some sizes: time, and how much memory the machine had less than at the start. Each
# Service has 12 endpoints. In the repository's folder: sh docs/moving-to-nftables.sh [SERVICES...]
set -eu
dir=$(mktemp -d)
sampler= command=
trap 'rm -rf "$dir"; [ -z "$sampler" ] || kill "$sampler"' EXIT
trap '[ -z "$command" ] || { kill "$command"; wait "$command" || true; }; exit 130' INT TERM
old=kube-proxy/iptables-nft new=kube-proxy/nftables

available() { awk '$1 == "MemAvailable:" { print int($2 / 1024) }' /proc/meminfo; }

# Prints a row of the table, and the step's own output on stderr.
step() {
	name=$1
	shift
	before=$(available) begin=$(date +%s) how=done
	while :; do
		available
		sleep 1
	done >"$dir/available" &
	sampler=$!
	"$@" >&2 &
	command=$!
	wait $command || how="exit status $?"
	kill $sampler
	sampler= command=
	took=$(($(date +%s) - begin)) least=$(sort -n "$dir/available" | head -n 1)
	echo "| $name | $services | $((took / 60)) min $((took % 60)) s | $((before - least)) MiB | $how |"
}

echo "| step | Services | time | memory | end |"
echo "| --- | --- | --- | --- | --- |"
[ $# -gt 0 ] || set -- 1000
for services; do
	size="--services $services --endpoints 12" few=
	# With its usual shares, a simulated cluster of many Services needs more NodePorts than there are.
	[ "$services" -le 10000 ] || few="--set shape.types.NodePort=0.01 --set shape.types.LoadBalancer=0.02"
	# shellcheck disable=SC2086 # a list of words on purpose
	{
		step "does it do the same (migrate)" bin/synclab migrate $size $few --reps 1 --max-time 5m --from $old --to $new --out "$dir/migrate-$services"
		step "what does it cost (compare)" bin/synclab compare $size --reps 1 --max-time 5m --subjects $old,$new --out "$dir/compare-$services"
		step "how far can it grow (plan)" bin/synclab plan $size --churn 10 --budget 10m --today $old --subjects $old,$new --fresh --out "$dir/plan-$services"
	}
done
