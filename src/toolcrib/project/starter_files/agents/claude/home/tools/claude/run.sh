#!/bin/sh
# One task on standard input, events as JSON lines on standard output.
state="$PWD/$1"
mkdir -p "$state"
shift
export CLAUDE_CONFIG_DIR="$state"
exec claude -p --output-format stream-json --verbose --permission-mode acceptEdits --allowedTools Bash \
  ${1:+--resume "$1"}
