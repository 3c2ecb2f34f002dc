#!/bin/bash
# Takes a bookie out of the cluster, before the overlay has fewer of them:
#
#   k8s/decommission.sh bookie-4
#
# It makes a Job of jobs/decommission.yaml with the image, the metadata URL and the credentials that
# bookies have, and waits until that Job is over: 0 if no ledger names the bookie any more, 1 if the Job
# has failed, 2 for a bookie that is not the last. It is refused, and nothing is changed, where the other
# bookies could not hold every copy. If this is ended, the Job goes on.
set -euo pipefail
jobs=$(cd "$(dirname "$0")" && pwd)/jobs
bookie=$1

on_cluster() { kubectl -n fencelog "$@"; }
over() { on_cluster get "$job" -o 'jsonpath={.status.conditions[?(@.status=="True")].type}'; }
of_bookies() { on_cluster get statefulset/bookie -o "jsonpath={$1}"; }

last=bookie-$(($(of_bookies .spec.replicas) - 1))
if [[ $bookie != "$last" ]]; then
    echo "the StatefulSet removes $last first, not $bookie" >&2
    exit 2
fi
image=$(of_bookies '.spec.template.spec.containers[0].image')
metadata=$(of_bookies '.spec.template.spec.containers[0].args[2]')
volume='.spec.template.spec.volumes[?(@.name=="zookeeper-credentials")]'
credentials=$(of_bookies "$volume.secret.secretName")
# An & in what is put in means itself.
job=$(sed -e "s|IMAGE|$image|" -e "s|BOOKIE|$bookie|" -e "s|METADATA|${metadata//&/\\&}|" \
    -e "s|CREDENTIALS|${credentials:-none}|" "$jobs/decommission.yaml" | on_cluster create -o name -f -)
echo "$job takes $bookie out of the cluster"
until conditions=" $(over) " && [[ $conditions == *" Complete "* || $conditions == *" Failed "* ]]; do
    sleep 5
done
on_cluster logs "$job" --tail=5
if [[ $conditions == *" Failed "* ]]; then
    echo "$bookie stays: $job has failed" >&2
    exit 1
fi
