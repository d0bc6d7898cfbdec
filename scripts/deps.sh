#!/bin/sh
# Checks that the tools of scripts/tools.txt exist: those of the lab, or with the argument ci those of all tests (it tries
# to install the optional ones, too). As root
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

# Prints the command that installs "$@" here; fails if no package manager is known.
install_command() {
	if has apt-get; then
		echo "apt-get install -y --no-install-recommends $*"
	elif has dnf; then
		# Fedora has a package for each variant of iptables, RHEL only the first.
		echo "dnf install -y --setopt=strict=0 $*" | sed 's/ iptables/ iptables-nft iptables-legacy/'
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

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A fresh Debian image has no package lists yet.
update=true
if has apt-get; then
	export DEBIAN_FRONTEND=noninteractive
	update="apt-get update"
fi
install() {
	echo "installing $1: $2"
	command="$update && $2"
	sh -c "$command" >"$log" 2>&1 || return 1
	update=true
}

if [ -n "$missing" ]; then
	# shellcheck disable=SC2086 # a list of words on purpose
	command=$(install_command $missing) || give_up "install it with your system's package manager"
	[ "$(id -u)" -eq 0 ] || give_up "as root, run: $command"
	if ! install "$missing" "$command"; then
		tail -n 5 "$log" >&2
		give_up "this failed: $command"
	fi
fi

# One by one: a package that a distribution lacks must not keep the others away.
[ "$wanted" = ci ] && [ "$(id -u)" -eq 0 ] || exit 0
for package in $(packages optional); do
	command=$(install_command "$package") || exit 0
	install "$package" "$command" || echo "without $package, which some tests need: $(tail -n 1 "$log")"
done
