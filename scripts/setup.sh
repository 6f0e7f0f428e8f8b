#!/bin/sh
# Makes .venv with exactly what requirements-dev.lock names and the project itself, editable.
# A second run finds its stamp and does nothing, without the network.
# PYTHON names the interpreter to use; without it the first of the known names that is new enough.
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
    new_enough "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or newer that runs."
fi

# What the environment depends on: the place (scripts in .venv hold it), the interpreter, the files named.
fingerprint() {
    {
        pwd -P
        version_of .venv/bin/python
        cat "$@"
    } | sha256sum | cut -d ' ' -f 1
}

# `fresh STAMP FILE...`: whether the step that writes this stamp was done for these files as they are.
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
    fresh .synced requirements-dev.lock && fresh .ready requirements-dev.lock pyproject.toml
}

if ready; then
    exit 0
fi

# Two runs at once must not build the same folder; the lock is on this folder itself and leaves no file.
if command -v flock >/dev/null; then
    exec 9<.
    flock 9
    if ready; then
        exit 0
    fi
fi

[ -w . ] || die "$(pwd) cannot be written by $(id -un)."
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
        reason="it was not finished, or was made in another folder"
    elif ! .venv/bin/uv --version >/dev/null 2>&1; then
        reason="its uv does not run"
    fi
fi

if [ -n "$reason" ]; then
    say "making .venv anew: $reason"
    rm -rf .venv
fi

if ! [ -e .venv ]; then
    python=${PYTHON:-$(find_python)}
    [ -n "$python" ] || die "no Python 3.11 or newer found; install one, or name it: make PYTHON=/path/to/python"
    say "making .venv with $python ($(version_of "$python"))"
    "$python" -m venv .venv ||
        die "$python cannot make a virtual environment; on Debian: apt-get install python3-venv"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        --only-binary :all: -r requirements-uv.lock || die "uv could not be installed; is the package index reachable?"
    pwd -P >.venv/.place
fi

# The interpreter is named outright, so that no UV_ variable or activated environment leads elsewhere.
uv() { .venv/bin/uv --quiet "$@" --python .venv/bin/python; }
cache=$(.venv/bin/uv cache dir)
if ! mkdir -p "$cache" 2>/dev/null || ! [ -w "$cache" ]; then
    export UV_NO_CACHE=1
fi

if ! fresh .synced requirements-dev.lock; then
    say "installing what requirements-dev.lock names"
    # What was fetched before serves again, the network is asked only for the rest.
    uv pip sync --offline --require-hashes requirements-dev.lock 2>/dev/null ||
        uv pip sync --require-hashes requirements-dev.lock ||
        die "the locked packages could not be installed; is the package index reachable?"
    fingerprint requirements-dev.lock >.venv/.synced
fi
say "installing the project itself"
uv pip install --offline --no-deps --no-build-isolation --editable .
fingerprint requirements-dev.lock pyproject.toml >.venv/.ready
say "done"
