#!/bin/sh
# Create .venv with exactly the packages of requirements-dev.lock, and the project itself, editable.
# A second run finds that nothing has changed and does nothing. It does not use the network.
# PYTHON names the interpreter to use. Without it, the first known name that is new enough is used.
set -eu
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

version_of() { "$1" -c 'import sys; print(*sys.version_info[:3], sep=".")' 2>/dev/null || true; }

find_python() {
    for name in python3.11 python3.12 python3.13 python3.14 python3; do
        if new_enough "$name"; then
            echo "$name"
            return
        fi
    done
}

if [ -n "${PYTHON:-}" ]; then
    new_enough "$PYTHON" || die "PYTHON=$PYTHON does not run, or is older than Python 3.11."
fi

# Print a digest of all that the environment depends on: its path (scripts in .venv contain it), the
# interpreter, and the files given.
fingerprint() {
    {
        pwd -P
        version_of .venv/bin/python
        cat "$@"
    } | sha256sum | cut -d ' ' -f 1
}

# `fresh STAMP FILE...` succeeds if the step that writes this stamp was done for these files unchanged.
fresh() {
    stamp=.venv/$1
    shift
    [ "$(cat "$stamp" 2>/dev/null)" = "$(fingerprint "$@")" ]
}

ready() {
    [ -n "$(version_of .venv/bin/python)" ] || return 1
    if [ -n "${PYTHON:-}" ] && [ "$(version_of .venv/bin/python)" != "$(version_of "$PYTHON")" ]; then
        return 1
    fi
    # shellcheck disable=SC2046 # no file of the page has a space in its name
    fresh .synced requirements-dev.lock && fresh .ready requirements-dev.lock pyproject.toml &&
        fresh .page $(page_files)
}

page_files() { find frontend scripts/page.py -name node_modules -prune -o -type f -print | sort; }

if ready; then
    exit 0
fi

# Two runs at once must not build the same folder. The lock is on the folder itself, so it leaves no file.
if command -v flock >/dev/null; then
    exec 9<.
    flock 9
    if ready; then
        exit 0
    fi
fi

[ -w . ] || die "$(id -un) may not write to $(pwd)."
if [ -d .venv ] && ! [ -w .venv ]; then
    die ".venv belongs to another user ($(stat -c %U .venv)); remove it as that user, then try again."
fi

reason=
if [ -e .venv ]; then
    have=$(version_of .venv/bin/python)
    if [ -z "$have" ] || ! new_enough .venv/bin/python; then
        reason="its Python does not run"
    elif [ -n "${PYTHON:-}" ] && [ "$have" != "$(version_of "$PYTHON")" ]; then
        reason="it has Python $have, PYTHON is $(version_of "$PYTHON")"
    elif [ "$(cat .venv/.place 2>/dev/null)" != "$(pwd -P)" ]; then
        reason="it was not finished, or was created in another folder"
    elif ! .venv/bin/uv --version >/dev/null 2>&1; then
        reason="its uv does not run"
    fi
fi

if [ -n "$reason" ]; then
    say "creating .venv again: $reason"
    rm -rf .venv
fi

if ! [ -e .venv ]; then
    python=${PYTHON:-$(find_python)}
    [ -n "$python" ] || die "no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python"
    say "creating .venv with $python ($(version_of "$python"))"
    "$python" -m venv .venv ||
        die "$python cannot create a virtual environment; on Debian: apt-get install python3-venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r requirements-uv.lock || die "uv could not be installed; is the package index reachable?"
    pwd -P >.venv/.place
fi

# The interpreter is given explicitly, so that no UV_ variable or activated environment changes it.
uv() { .venv/bin/uv --quiet "$@" --python .venv/bin/python; }
cache=$(.venv/bin/uv cache dir)
if ! mkdir -p "$cache" 2>/dev/null || ! [ -w "$cache" ]; then
    export UV_NO_CACHE=1
fi

if ! fresh .synced requirements-dev.lock; then
    say "installing the packages of requirements-dev.lock"
    # Packages in the cache are used first; the network is needed only if some are missing.
    uv pip sync --offline --require-hashes requirements-dev.lock 2>/dev/null ||
        uv pip sync --require-hashes requirements-dev.lock ||
        die "the locked packages could not be installed; is the package index reachable?"
    fingerprint requirements-dev.lock >.venv/.synced
fi
if ! fresh .ready requirements-dev.lock pyproject.toml; then
    say "installing the project itself"
    uv pip install --offline --no-deps --no-build-isolation --editable .
    fingerprint requirements-dev.lock pyproject.toml >.venv/.ready
fi
say "building the web page"
# Everything else works without it, also where the npm registry cannot be reached.
.venv/bin/python scripts/page.py build ||
    say "the web page was not built, and the server will say so; is the npm registry reachable?"
# shellcheck disable=SC2046
fingerprint $(page_files) >.venv/.page
say "done"
