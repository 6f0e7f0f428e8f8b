#!/usr/bin/env bash
# Run tests as an ordinary user would: a fresh clone in a folder named `toolcrib`, the distribution's Python,
# an empty environment, started in the background. Must be run by root. Arguments are pytest's; none: all tests.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

user=toolcrib-tests
python=/usr/bin/python3
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null
fi
id "$user" >/dev/null 2>&1 || useradd --system --create-home --shell /bin/sh "$user"

home=$(mktemp -d "/tmp/$user.XXXXXX")
trap 'rm -rf "$home"' EXIT
git clone --quiet --no-hardlinks . "$home/toolcrib"
chown -R "$user": "$home"

# A shell ignores SIGINT in its background jobs; Python programs started so must still be testable.
runuser -u "$user" -- env -i HOME="$home" PATH=/usr/local/bin:/usr/bin:/bin CI=true PYTHON="$python" \
    make -C "$home/toolcrib" test PYTEST_ARGS="$*" </dev/null &
wait $!
