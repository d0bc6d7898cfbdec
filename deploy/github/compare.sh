#!/usr/bin/env bash
# Judges head against base: the first step of action.yml. Inputs are environment variables, as action.yml names them. It
# ends with the status of synclab pr.
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

# root runs a command as root where sudo allows it, else as this user. Its Go caches are apart, so that this user's stay
# its own.
root() {
	if [ "$(id -u)" -ne 0 ] && sudo -n true 2>/dev/null; then
		sudo -n env "PATH=$PATH:/usr/sbin:/sbin" "HOME=$work/home" "$@"
	else
		env "PATH=$PATH:/usr/sbin:/sbin" "$@"
	fi
}

# shellcheck disable=SC2153 # these are inputs
for folder in "$BASE" "$HEAD"; do
	[ -d "$folder" ] || fail "no folder $folder: check out base and head first"
done
base=$(cd -- "$BASE" && pwd)
head=$(cd -- "$HEAD" && pwd)
case $MEASURE in
kube-proxy | synclab) ;;
*) fail "measure: want kube-proxy or synclab, got $MEASURE" ;;
esac
case $base$head in
*[,\"]*) fail "the folders of base and head must have no comma and no quote in their names" ;;
esac

# With =, a value never becomes another flag.
flags=(pr "--of=$MEASURE" "--base=$base" "--head=$head" "--modes=${MODES:-iptables-legacy,nftables}" "--matrix=${MATRIX:-pull-request}"
	"--budget=${BUDGET:-40m}" "--max-slower=${MAX_SLOWER:-10%}" "--out=$work/review" --format=github)

# Git may refuse the folder of another user, so its version is passed.
commit=$(git -C "$lab" describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
(cd "$lab" && go build -buildvcs=false -ldflags "-X synclab/bench/lab/machine.Commit=$commit" -o "$work/bin/synclab" ./cmd/synclab)
root sh "$lab/scripts/deps.sh"

status=0
root "$work/bin/synclab" "${flags[@]}" >"$work/table.md" || status=$?
cat "$work/table.md"
cat "$work/table.md" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
if [ -s "$work/table.md" ]; then
	printf 'table=%s\nfolder=%s\n' "$work/table.md" "$work/review" >>"${GITHUB_OUTPUT:-/dev/null}"
fi
exit "$status"
