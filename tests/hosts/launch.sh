#!/bin/sh
# Runs a command on a host of `cluster.py`, for mpiexec: launch.sh [-x...] HOST COMMAND...
#
# It is called as ssh is, and like ssh gives the command to a shell of that host.
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
read -r process processors <"$PENSTOCK_HOSTS/$host" || exit 1
exec taskset --cpu-list "$processors" nsenter --target "$process" \
    --net --uts --ipc --mount --pid="/proc/$process/ns/pid_for_children" sh -c "$*"
