#!/bin/sh
# Lists every TODO below a folder, then how many there are.
set -eu
found=$(mktemp)
grep -rnIw --exclude-dir=.git --exclude-dir=.venv --exclude-dir=node_modules TODO -- "$1" >"$found" || [ $? -eq 1 ]
cat "$found"
echo "Scan complete."
echo "Matches found: $(wc -l <"$found")"
