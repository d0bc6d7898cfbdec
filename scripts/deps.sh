#!/bin/sh
# Checks that the tools of scripts/tools.txt exist: those of the lab, or with the argument ci those of all tests. As root
# it installs missing tools with the system's package manager. Otherwise it prints, in one line, what to install; it never
# asks for more rights. The installation changes no firewall rule. With the argument packages it prints the lab's packages.
set -eu

# The PATH of an ordinary user often lacks the folders of these tools.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
list=$(dirname "$0")/tools.txt

has() { command -v "$1" >/dev/null 2>&1; }

# Prints the packages of the tools for "$1" that are missing, or all of them with "$2".
packages() {
	while read -r for tools packages; do
		case $for in lab | "$1") ;; *) continue ;; esac
		there=
		for tool in $(echo "$tools" | tr '|' ' '); do
			if has "$tool"; then there=yes; fi
		done
		if [ -z "$there" ] || [ -n "${2-}" ]; then echo "$packages"; fi
	done <"$list" | xargs
}

if [ "${1-}" = packages ]; then
	packages lab all
	exit
fi
wanted=${1:-lab}
missing=$(packages "$wanted")
[ -n "$missing" ] || exit 0

# Prints the command that installs "$@" here; fails if no package manager is known.
install_command() {
	if has apt-get; then
		echo "apt-get install -y --no-install-recommends $*"
	elif has dnf; then
		# Fedora has a package for each variant of iptables.
		echo "dnf install -y $*" | sed 's/ iptables/ iptables-nft iptables-legacy/'
	elif has apk; then
		echo "apk add $*" | sed 's/ iptables/ iptables iptables-legacy/'
	elif has pacman; then
		echo "pacman -S --needed --noconfirm $*"
	elif has zypper; then
		echo "zypper --non-interactive install $*"
	else
		return 1
	fi
}

# Without iptables nothing runs. Without nft only the subjects that need it are omitted. CI needs all.
give_up() {
	echo "synclab needs $missing: $1" >&2
	case "$wanted $missing" in ci* | *iptables*) exit 1 ;; esac
	exit 0
}

# shellcheck disable=SC2086 # a list of words on purpose
command=$(install_command $missing) || give_up "install it with your system's package manager"
[ "$(id -u)" -eq 0 ] || give_up "as root, run: $command"

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing $missing: $command"
# A fresh Debian image has no package lists yet.
if has apt-get; then
	export DEBIAN_FRONTEND=noninteractive
	command="apt-get update && $command"
fi
if ! sh -c "$command" >"$log" 2>&1; then
	tail -n 5 "$log" >&2
	give_up "this failed: $command"
fi
