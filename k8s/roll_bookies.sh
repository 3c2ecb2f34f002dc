#!/bin/bash
# Changes bookies one at a time: the next one only when this one is ready, and every entry has all its
# copies again. The argument is a command that changes the pods of the StatefulSet:
#
#   k8s/roll_bookies.sh kubectl -n fencelog rollout restart statefulset/bookie
#   k8s/roll_bookies.sh kubectl apply -k overlay -l app.kubernetes.io/component=bookie
#
# It may be ended at any time. Then the bookies with lower numbers stay as they are, until it is run
# again or `partition 0` is set.
set -euo pipefail

on_cluster() { kubectl -n fencelog "$@"; }
in_broker() { on_cluster exec deployment/broker -- fencelog "$@"; }
partition() {
    on_cluster patch statefulset bookie --type=merge \
        -p "{\"spec\": {\"updateStrategy\": {\"rollingUpdate\": {\"partition\": $1}}}}"
}
all_copies_are_there() {
    # Not through a pipe: a command whose last lines nobody reads fails (SIGPIPE).
    status=$(in_broker autorecovery status) &&
        grep -q '^recent check: 0 ledgers lacked copies' <<< "$status" &&
        marked=$(in_broker ledger underreplicated) && [[ -z $marked ]]
}

replicas=$(on_cluster get statefulset bookie -o 'jsonpath={.spec.replicas}')
partition "$replicas"
"$@"
for ((number = replicas - 1; number >= 0; number--)); do
    partition "$number"
    on_cluster rollout status statefulset/bookie
    # Copies that were in flight when the bookie stopped are missing. The auditor sees that within a
    # minute, also in ledgers that are still being written, and has them made again.
    sleep "${SECONDS_TO_LOOK:-60}"
    until all_copies_are_there; do
        echo "bookie-$number: waiting for its copies"
        sleep 5
    done
done
