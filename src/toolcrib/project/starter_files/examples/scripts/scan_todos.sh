#!/bin/sh
# Lists every TODO below a folder, then how many there are.
set -eu
[ -r "$1" ] || { echo "$1 cannot be read" >&2; exit 1; }
found=$(mktemp)
# What no tool may read (.env, say) is passed over: -s says nothing of it, and the exit code does not count.
grep -rnIws --exclude-dir=.git --exclude-dir=.glee --exclude-dir=.toolcrib --exclude-dir=.venv --exclude-dir=node_modules TODO -- "$1" >"$found" || :
cat "$found"
echo "Scan complete."
echo "Matches found: $(wc -l <"$found")"
