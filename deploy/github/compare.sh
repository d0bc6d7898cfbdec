#!/usr/bin/env bash
# Measures base and head, and writes the differences: the first step of action.yml. Inputs are environment variables, as
# action.yml names them. It ends with the status of synclab diff.
set -euo pipefail

lab=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d "${RUNNER_TEMP:-/tmp}/synclab-XXXXXX")
chmod 755 "$work"
# Synclab looks for programs in ../lib of its folder, so that must not be a folder where others may write.
mkdir "$work/bin"

fail() {
	echo "synclab action: $1" >&2
	exit 2
}

# build FOLDER FILE builds the synclab of a checkout. Git may refuse the folder of another user, so its version is passed.
build() {
	local commit
	commit=$(git -C "$1" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
	(cd "$1" && go build -buildvcs=false -ldflags "-X synclab/bench/machine.Commit=$commit" -o "$2" ./cmd/synclab)
}

# root runs a command as root where sudo allows it, else as this user. Its Go caches are apart, so that this user's stay
# its own.
root() {
	if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then
		sudo -n env "PATH=$PATH:/usr/sbin:/sbin" "HOME=$work/home" "$@"
	else
		env "PATH=$PATH:/usr/sbin:/sbin" "$@"
	fi
}

# side NAME FOLDER measures one side.
side() {
	local run=("${flags[@]}" --out "$work/$1") program=$work/bin/synclab
	if [ "$MEASURE" = synclab ]; then
		program=$work/bin/synclab-$1
		build "$2" "$program"
	else
		run+=(--kube-proxy-src "$2")
	fi
	root "$program" "${run[@]}" -- "${SCENARIO:-steady-churn}"
}

# shellcheck disable=SC2153 # these are inputs
for folder in "$BASE" "$HEAD"; do
	[ -d "$folder" ] || fail "no folder $folder: check out base and head first"
done
base=$(cd -- "$BASE" && pwd)
head=$(cd -- "$HEAD" && pwd)
case $MEASURE in
kube-proxy) subject=kube-proxy/nftables ;;
synclab) subject=synclab/nftables ;;
*) fail "measure: want kube-proxy or synclab, got $MEASURE" ;;
esac

# With = and --, a value never becomes another flag.
flags=(run "--reps=${REPS:-8}" "--subjects=${SUBJECT:-$subject}")
if [ -n "${SERVICES:-}" ]; then
	flags+=("--services=$SERVICES")
fi

build "$lab" "$work/bin/synclab"
root sh "$lab/scripts/deps.sh"
side before "$base"
side after "$head"

status=0
"$work/bin/synclab" diff "$work/before" "$work/after" --format=github "--max-slower=${MAX_SLOWER:-10%}" "--page=$work/diff.html" >"$work/table.md" || status=$?
cat "$work/table.md"
cat "$work/table.md" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
if [ -s "$work/table.md" ]; then
	printf 'table=%s\nfolder=%s\n' "$work/table.md" "$work" >>"${GITHUB_OUTPUT:-/dev/null}"
fi
exit "$status"
