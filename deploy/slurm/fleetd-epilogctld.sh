#!/bin/sh
# Slurm's EpilogSlurmctld, on the host of slurmctld. Only for a controller that does not ask Slurm by itself: with
# `actuator: {kind: slurm}` it hears of every end of a job without this script.
#
# /etc/fleetd/desk.env says where the controller is, and as whom it is asked (an operator's certificate):
#   FLEETD_CONTROLLER=controller:7443 FLEETD_CA=… FLEETD_CERT=… FLEETD_KEY=…
# The work is done in the background, in bounded time: Slurm says how a job has ended only after this script, and no
# job waits for fleetd. Of a larger job the first HOSTS_MAX hosts are told: enough to see that it failed on more than
# one, which accuses none of them. Always ends with 0.
export PATH=/opt/fleetd/bin:/usr/local/bin:/usr/bin:/bin
ENVIRONMENT=/etc/fleetd/desk.env
HOSTS_MAX=64

if [ "${1:-}" != background ]; then
    # Slurm kills this script's process group when it ends: wait until the other one has left it, and says so.
    setsid --fork "$0" background </dev/null | head -n 1 >/dev/null
    exit 0
fi
echo started
exec >/dev/null 2>&1

for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do
    shown=$(timeout 10 squeue --noheader --jobs="$SLURM_JOB_ID" --states=all '--format=%T %M' | head -n 1)
    [ "${shown%% *}" = COMPLETING ] || break
    sleep 5
done
case ${shown%% *} in
COMPLETED) how=--ok ;;
FAILED | NODE_FAIL | BOOT_FAIL | OUT_OF_MEMORY) how=--failed ;;
*) exit 0 ;; # sent away, out of its time, or not known: it says nothing about its hosts
esac
# [DAYS-][HOURS:]MINUTES:SECONDS
ran=$(printf '%s\n' "${shown##* }" |
    awk -F '[-:]' '{print $NF + 60 * $(NF - 1) + (NF > 2 ? 3600 * $(NF - 2) : 0) + (NF > 3 ? 86400 * $1 : 0)}')

[ -r "$ENVIRONMENT" ] || exit 0
set -a
. "$ENVIRONMENT"
set +a
for host in $(timeout 10 scontrol show hostnames "${SLURM_JOB_NODELIST:-}" | head -n "$HOSTS_MAX"); do
    timeout --kill-after=1 10 fleetd job ended "$host" "$SLURM_JOB_ID" "$how" --ran "$ran"
done
exit 0
