#!/bin/sh
# One task on standard input, events as JSON lines on standard output.
state="$PWD/$1"
mkdir -p "$state"
shift
# Its own sandbox is off, because it already runs in one.
export CODEX_HOME="$state"
exec codex exec --json --skip-git-repo-check --sandbox danger-full-access ${1:+resume "$1"} -
