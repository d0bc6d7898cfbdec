#!/bin/sh
# Fetches the folder of every shard as soon as it is measured, and lets its pod end, until the Job has ended:
#
#   deploy/gather.sh FOLDER [NAMESPACE [JOB]]
#
# What a pod does while it measures is left alone: a pod whose phase is Running has measured and waits.
set -eu

out=${1:?usage: deploy/gather.sh FOLDER [NAMESPACE [JOB]]}
namespace=${2:-synclab}
job=${3:-synclab-sweep}

in_namespace() { kubectl --namespace "$namespace" "$@"; }

# What a pod sends is a stranger's: it ran other people's proxies. Files and folders are unpacked where nothing else lies, and
# a shard's folder then replaces what was gathered of it before. The pod ends only after that. It may send GATHER_LIMIT MiB
# (4096), its own shard only, and has GATHER_TIME (1h).
limit=${GATHER_LIMIT:-4096}
take() { # pod, completion index
	fresh=$(mktemp -d "$out/.gather.XXXXXX") &&
		mkdir "$fresh/runs" &&
		receive "$1" >"$fresh/tar" &&
		only_files "$1" "$fresh/tar" &&
		tar -C "$fresh/runs" --no-same-owner --no-same-permissions -xf "$fresh/tar" &&
		put "$fresh/runs" "$2" &&
		in_namespace exec "$1" --container hold -- touch /runs/gathered &&
		echo "gathered from $1"
	taken=$?
	rm -rf "$fresh"
	return "$taken"
}

receive() (
	ulimit -f $((limit * 2048)) # blocks of 512 bytes
	timeout "${GATHER_TIME:-1h}" kubectl --namespace "$namespace" exec "$1" --container hold -- tar -C /runs -cf - .
)

only_files() {
	list=$(tar -tvf "$2") || return
	# A sparse file is larger than what is sent of it.
	if ! printf '%s\n' "$list" | awk -v most="$limit" '{ sum += $3 } END { exit sum > most * 1048576 }'; then
		printf '%s: refused: its files are larger than %s MiB together\n' "$1" "$limit" >&2
		return 1
	fi
	if other=$(printf '%s\n' "$list" | grep -v '^[-d]'); then
		printf '%s: refused: in what it sends are links or devices:\n%s\n' "$1" "$other" >&2
		return 1
	fi
}

put() { # folder, completion index
	for shard in "$1"/shard-$(($2 + 1))-of-*; do
		[ -d "$shard" ] || continue # no match is the pattern itself
		old="$1/old"
		if [ -e "$out/${shard##*/}" ]; then mv "$out/${shard##*/}" "$old" || return; fi
		if ! mv "$shard" "$out/"; then
			[ ! -e "$old" ] || mv "$old" "$out/${shard##*/}"
			return 1
		fi
	done
}

# The index that the Job gave a pod is a label of it, which the pod cannot change.
gather() {
	pods=$(in_namespace get pods --selector "batch.kubernetes.io/job-name=$job" --field-selector status.phase=Running --output \
		'jsonpath={range .items[*]}{.metadata.name}={.metadata.labels.batch\.kubernetes\.io/job-completion-index} {end}') || return
	for entry in $pods; do
		pod=${entry%%=*}
		case " $done " in *" $pod "*) continue ;; esac # it is about to end
		if take "$pod" "${entry#*=}"; then done="$done $pod"; else echo "not gathered from $pod yet: trying again" >&2; fi
	done
}

in_namespace get job "$job" >/dev/null # there is none: kubectl says so
mkdir -p "$out"
done=
while :; do
	# An API server that is away for a moment is asked again: a sweep takes hours.
	ended=$(in_namespace get job "$job" --output 'jsonpath={.status.conditions[?(@.status=="True")].type}') || ended=
	gather
	case " $ended " in
	*" Complete "*) break ;;
	*" Failed "*) echo "some shards failed: kubectl --namespace $namespace describe job $job" >&2 && break ;;
	esac
	sleep "${GATHER_EVERY:-10}"
done
ls -d "$out"/shard-*
