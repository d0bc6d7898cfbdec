#!/usr/bin/env bash
# Writes the file TABLE into a comment of PULL_REQUEST: the comment of an earlier run, or a new one. Needs GH_TOKEN.
set -euo pipefail

mark='<!-- synclab -->'
comments=repos/$GITHUB_REPOSITORY/issues
body=$(mktemp)
trap 'rm -f "$body"' EXIT
{ echo "$mark" && cat "$TABLE"; } >"$body"

# Only comments of bots: others may have the mark, too.
id=$(gh api --paginate "$comments/$PULL_REQUEST/comments" \
	--jq '.[] | select(.user.type == "Bot" and (.body | startswith("'"$mark"'"))) | .id' | head -n 1)
if [ -n "$id" ]; then
	gh api --silent --method PATCH "$comments/comments/$id" -F "body=@$body"
else
	gh api --silent --method POST "$comments/$PULL_REQUEST/comments" -F "body=@$body"
fi
