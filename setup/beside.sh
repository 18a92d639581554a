#!/bin/sh
# Run two commands at the same time: beside.sh SHELL_COMMAND COMMAND...
#
# The second decides: its exit status is this one's, and where it fails the first is ended. How the first ends does not
# matter.
set -u
first=
# Both are ended with us, also where only one has begun.
trap 'kill $first ${!-} 2>/dev/null; wait; exit 130' INT HUP TERM
sh -c "exec $1" &
first=$!
shift
"$@" &
second=$!
wait "$second"
status=$?
[ "$status" -eq 0 ] || kill "$first" 2>/dev/null
wait "$first"
exit "$status"
