#!/bin/sh
# Checks that the tools for the lab exist: iptables-restore, in any variant, and nft. As root it installs missing tools
# with the system's package manager. Otherwise it prints, in one line, what to install; it never asks for more rights.
# The installation changes no firewall rule.
set -eu

# The PATH of an ordinary user often lacks the folders of these tools.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

has() { command -v "$1" >/dev/null 2>&1; }

missing=
has iptables-restore || has iptables-nft-restore || has iptables-legacy-restore || missing=iptables
has nft || missing="$missing nftables"
missing=${missing# }
[ -n "$missing" ] || exit 0

# Prints the command that installs "$@" here; fails if no package manager is known.
install_command() {
	if has apt-get; then
		echo "apt-get install -y $*"
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

# Without iptables nothing runs. Without nft only the subjects that need it are omitted.
give_up() {
	echo "synclab needs $missing: $1" >&2
	case $missing in *iptables*) exit 1 ;; esac
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
