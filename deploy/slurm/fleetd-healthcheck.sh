#!/bin/sh
# Slurm's HealthCheckProgram, and its Epilog, on every host with a fleetd agent (slurm.conf beside this file).
#
# Asks the agent whether new work may start, and closes the node at once when a fault stands; opens it again when none
# does, if nobody else has closed it meanwhile. The controller's own drain takes the place of this one, and lasts until
# its proof. `cannot tell` (the agent is down, an answer is missing) changes nothing: silence is no sign of health, and
# none of a fault. Always ends with 0: Slurm would drain the node for a script that fails.
export PATH=/opt/fleetd/bin:/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin
OURS="fleetd-check:" # begins our reasons, and END ends them: one that somebody has added to is his
END="~fleetd"
TIMEOUT="timeout --kill-after=1 10"

node=${SLURMD_NODENAME:-$(hostname -s)}
said=$($TIMEOUT fleetd check 2>&1)
code=$?
case $code in
0 | 1) ;;
3) exit 0 ;;
*) # `fleetd` is not there, or is asked wrongly: a check that never checks must not look like one that is content
	logger -t fleetd-healthcheck "fleetd check ended with $code on $node: $(printf '%s' "$said" | tail -n 1 | cut -c1-200)"
	exit 0
	;;
esac

shown=$($TIMEOUT scontrol show node "$node") || exit 0
state=$(printf '%s\n' "$shown" | sed -n 's/^ *State=\([^ ]*\).*/\1/p')
reason=$(printf '%s\n' "$shown" | sed -n 's/^ *Reason=//p')
case $state in *DRAIN* | *FAIL*) closed=yes ;; *) closed=no ;; esac

if [ "$code" = 1 ] && [ "$closed" = no ] && [ -z "$reason" ]; then
    why=$(printf '%s' "$said" | tr '\n[]' ' ()' | cut -c 1-200)
    $TIMEOUT scontrol update NodeName="$node" State=DRAIN Reason="$OURS $why $END"
elif [ "$code" = 0 ] && [ "$closed" = yes ]; then
    case $reason in "$OURS"*"$END ["*) $TIMEOUT scontrol update NodeName="$node" State=UNDRAIN ;; esac
fi
exit 0
