#!/bin/sh
# One task on standard input, events as JSON lines on standard output.
state="$PWD/$1"
mkdir -p "$state"
shift
export HOME="$state"
exec gemini --output-format stream-json --approval-mode yolo ${1:+--resume "$1"}
