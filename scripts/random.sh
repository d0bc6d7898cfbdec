#!/bin/sh
# Runs the random tests (those that ask package seeds) with one seed after the other, for some minutes, and prints the seeds
# that fail, with the command that does so again. usage: random.sh MINUTES FIRST_SEED
set -eu

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
until=$(($(date +%s) + $1 * 60))
seed=$2 failed=0
# Tests whose file asks for seeds: a helper of it may be who does.
packages=$(grep -rl --include='*_test.go' 'seeds\.Of(' . | xargs -n1 dirname | sort -u)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
trap 'exit 130' INT TERM
for package in $packages; do
	go test -c -o "$folder/$package.test" "$package"
done
while [ "$(date +%s)" -lt "$until" ]; do
	for package in $packages; do
		tests=$(grep -l 'seeds\.Of(' "$package"/*_test.go | xargs sed -n 's/^func \(Test[A-Z][A-Za-z0-9]*\)(t .*/\1/p' | paste -sd '|')
		if ! (cd "$package" && "$folder/$package.test" -test.run "^($tests)\$" -seed "$seed") >"$folder/output" 2>&1; then
			grep -v '^PASS$' "$folder/output" | cut -c1-1000 | head -40
			echo "again: go test -count=1 -run '$(sed -n 's/^--- FAIL: \(Test[A-Za-z0-9]*\).*/^\1$/p' "$folder/output" | paste -sd '|')' $package -seed $seed"
			failed=$((failed + 1))
		fi
	done
	seed=$((seed + 1))
done
echo "seeds $2 to $((seed - 1)): $failed failed"
[ "$failed" -eq 0 ]
