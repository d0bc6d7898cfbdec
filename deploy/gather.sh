#!/bin/sh
# Fetches the folder of each measured shard and then ends its pod, until the Job has ended:
#
#   deploy/gather.sh FOLDER [NAMESPACE [JOB]]
#
# Pods that still measure are not disturbed. A pod in phase Running has measured and waits.
set -eu

out=${1:?usage: deploy/gather.sh FOLDER [NAMESPACE [JOB]]}
namespace=${2:-synclab}
job=${3:-synclab-sweep}

in_namespace() { kubectl --namespace "$namespace" "$@"; }

# Data from a pod is not trusted, because other people's proxies ran there. Files and folders are unpacked in a new
# folder. A shard's folder then replaces its earlier copy. Only then the pod ends. A pod may send its own shard only, up
# to GATHER_LIMIT MiB (4096), within GATHER_TIME (1h).
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
	# A sparse file is larger than its data in the archive.
	if ! printf '%s\n' "$list" | awk -v most="$limit" '{ sum += $3 } END { exit sum > most * 1048576 }'; then
		printf '%s: refused: its files are larger than %s MiB in total\n' "$1" "$limit" >&2
		return 1
	fi
	if other=$(printf '%s\n' "$list" | grep -v '^[-d]'); then
		printf '%s: refused: its archive has links or devices:\n%s\n' "$1" "$other" >&2
		return 1
	fi
}

put() { # folder, completion index
	for shard in "$1"/shard-$2-of-*; do
		[ -d "$shard" ] || return # without a match, the pattern itself: nothing of this index was received
		old="$1/old"
		if [ -e "$out/${shard##*/}" ]; then mv "$out/${shard##*/}" "$old" || return; fi
		if ! mv "$shard" "$out/"; then
			[ ! -e "$old" ] || mv "$old" "$out/${shard##*/}"
			return 1
		fi
	done
}

# The Job stores the index of a pod in a label, which the pod cannot change.
gather() {
	pods=$(in_namespace get pods --selector "batch.kubernetes.io/job-name=$job" --field-selector status.phase=Running --output \
		'jsonpath={range .items[*]}{.metadata.name}={.metadata.labels.batch\.kubernetes\.io/job-completion-index} {end}') || return
	for entry in $pods; do
		pod=${entry%%=*}
		case " $done " in *" $pod "*) continue ;; esac # the pod is about to end
		if take "$pod" "${entry#*=}"; then done="$done $pod"; else echo "not gathered from $pod yet: retrying" >&2; fi
	done
}

in_namespace get job "$job" >/dev/null # kubectl reports a missing Job
mkdir -p "$out"
done=
while :; do
	# If the API server is unavailable for a moment, it is asked again: a sweep takes hours.
	ended=$(in_namespace get job "$job" --output 'jsonpath={.status.conditions[?(@.status=="True")].type}') || ended=
	gather
	case " $ended " in
	*" Complete "*) break ;;
	*" Failed "*) echo "some shards failed: kubectl --namespace $namespace describe job $job" >&2 && break ;;
	esac
	sleep "${GATHER_EVERY:-10}"
done
ls -d "$out"/shard-*
