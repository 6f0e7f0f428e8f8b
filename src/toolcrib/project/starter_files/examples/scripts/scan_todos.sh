#!/bin/sh
# Lists every TODO below a folder, then how many there are.
set -eu
[ -r "$1" ] || { echo "$1 cannot be read" >&2; exit 1; }
found=$(mktemp)
# What no tool may read (.env, say) is passed over: -s says nothing of it, but the exit code is 2 all the same. So only
# what grep complains of is an error, and what no grep ends with.
status=0
errors=$(grep -rnIws --exclude-dir=.git --exclude-dir=.glee --exclude-dir=.toolcrib --exclude-dir=.venv --exclude-dir=node_modules TODO -- "$1" 2>&1 >"$found") || status=$?
[ "$status" -le 2 ] && [ -z "$errors" ] || { echo "the scan failed ($status): $errors" >&2; exit 1; }
cat "$found"
count=$(wc -l <"$found")
echo "Scan complete."
echo "Matches found: $count"
