#!/bin/sh
# Slurm's Prolog on GPU hosts (slurm.conf beside this file): burns in the job's GPUs at level `smoke` before it starts.
#
#   found bad (exit code 1)      the node is drained with the reason, the job goes elsewhere
#   passed (0)                   the job starts
#   not judged (3)               the job starts: a GPU in use, no time, a missing library say nothing about the hardware
#   misuse (2), no fleetd, …     the job starts, and the system log says so: one mistake must not drain a whole fleet
#
# Takes 75 s on eight GPUs; after 90 s `smoke` ends itself as not judged, and after 105 s it is ended here.
PATH="${PATH:+$PATH:}/opt/fleetd/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin"
export PATH HOME="${HOME:-/root}"
LIMIT_S=${FLEETD_PROLOG_LIMIT_S:-105}
REPORTS=${FLEETD_REPORTS:-/var/log/fleetd-burnin}
END="~fleetd" # as the other scripts here mark their reasons

[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0 # a job without GPUs
node=${SLURMD_NODENAME:-$(hostname -s)}
# Only the last report of each host is kept: a prolog must not fill a disk.
report=/dev/null
mkdir -p "$REPORTS" 2>/dev/null && [ -w "$REPORTS" ] && report=$REPORTS/prolog-$node.json

set -- --level smoke --devices "$SLURM_JOB_GPUS"
[ "$report" = /dev/null ] || set -- "$@" --json "$report"
said=$(timeout --kill-after=10 "$LIMIT_S" fleetd burnin run "$@" 2>&1)
code=$?

tell() { logger -t fleetd-prolog -- "job ${SLURM_JOB_ID:-?}: $1" 2>/dev/null || :; }
case $code in
0) exit 0 ;;
1)
    why=$(printf '%s\n' "$said" | sed -n 's/^ *culprit: *//p; s/^ *why: *//p' | head -n 1 | tr '[]' '()' |
        tr -cd '[:print:]' | cut -c 1-200)
    why=${why:-burn-in found a fault; see $report}
    tell "drained: $why"
    timeout --kill-after=1 10 scontrol update NodeName="$node" State=DRAIN Reason="fleetd-burnin: $why $END" ||
        tell "the node could not be drained by name; the exit code of this script does it"
    exit 1 # Slurm starts the job elsewhere
    ;;
3) tell "not judged, the job starts: $(printf '%s\n' "$said" | tail -n 2 | tr '\n' ' ')" ;;
124 | 137) tell "not judged within $LIMIT_S s, the job starts" ;;
*) tell "burn-in could not run (exit code $code), the job starts: $(printf '%s\n' "$said" | tail -n 1)" ;;
esac
exit 0
