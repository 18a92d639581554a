#!/bin/sh
# Run one step of the set-up: step.sh SECONDS TITLE REMEDY COMMAND...
#
# On a terminal a bar shows how the time compares with SECONDS, which the step usually takes; elsewhere a line says that it
# begins, one every STEP_EVERY seconds (30) that it goes on, and one how long it took. The command's output goes to a log
# that is shown only when the command fails, together with REMEDY.
# Exit status: the command's; 2 for wrong usage.
set -u
if [ "$#" -lt 4 ]; then
	sed -n '2s/^# //p' "$0" >&2
	exit 2
fi
expected=$1 title=$2 remedy=$3
shift 3
case $expected in
'' | *[!0-9]* | 0)
	echo "$0: SECONDS must be a whole number from 1, not '$expected'" >&2
	exit 2
	;;
esac
log=$(mktemp "${TMPDIR:-/tmp}/mrclab-setup.XXXXXX") || exit 1
# The file has no name from here on: however this script ends, nothing of it is left.
exec 3<>"$log"
rm -f "$log"
began=$(date +%s)
"$@" >&3 2>&1 3>&- </dev/null &
child=$!
# The command is ended with us, and nothing is left behind.
trap 'kill "$child" 2>/dev/null; wait "$child" 2>/dev/null; exit 130' INT HUP TERM

if [ -t 1 ]; then
	while kill -0 "$child" 2>/dev/null; do
		taken=$(($(date +%s) - began))
		# The bar is full only when the step has ended.
		filled=$((taken * 20 / expected))
		[ "$filled" -gt 19 ] && filled=19
		done_part=$(printf '%*s' "$filled" '' | tr ' ' '#')
		open_part=$(printf '%*s' "$((20 - filled))" '' | tr ' ' '.')
		printf '\r%-44s [%s%s] %3d s of about %d s ' "$title" "$done_part" "$open_part" "$taken" "$expected"
		sleep 0.2
	done
	printf '\r%-44s [####################]' "$title"
	line='' end='\033[K\n'
else
	# Whole lines: what reads them may show nothing before their end.
	printf '%s: usually about %d s\n' "$title" "$expected"
	next=$((began + ${STEP_EVERY:-30}))
	while kill -0 "$child" 2>/dev/null; do
		sleep 0.2
		now=$(date +%s)
		if [ "$now" -ge "$next" ]; then
			kill -0 "$child" 2>/dev/null && printf '%s: goes on, %d s by now\n' "$title" "$((now - began))"
			next=$((now + ${STEP_EVERY:-30}))
		fi
	done
	line="$title:" end='\n'
fi
wait "$child"
status=$?
taken=$(($(date +%s) - began))
if [ "$status" -eq 0 ]; then
	printf "%s done in %d s$end" "$line" "$taken"
	exit 0
fi
printf "%s failed after %d s$end" "$line" "$taken"
{
	tail -n 20 /dev/fd/3 | sed 's/^/  | /'
	echo "$title failed (exit status $status). $remedy"
} >&2
exit "$status"
