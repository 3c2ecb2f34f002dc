#!/bin/bash
# Restores ZooKeeper from a backup that components/backup has made:
#
#   k8s/restore_zookeeper.sh                          lists the backups
#   k8s/restore_zookeeper.sh 2026-11-23T20-15-00Z     stops everything, restores, starts everything
#
# What the servers had is set aside in their volumes, and stays until you delete it. Where it ends with
# an error, or is ended, it may be run again. 1 also where all was started, and some pods are not ready.
set -euo pipefail
jobs=$(cd "$(dirname "$0")" && pwd)/jobs

on_cluster() { kubectl -n fencelog "$@"; }
workloads=(deployment/broker deployment/autorecovery statefulset/bookie statefulset/zookeeper)
running() { on_cluster get "$1" -o 'jsonpath={.spec.replicas}'; }
replicas_of() { on_cluster get "$1" -o 'jsonpath={.metadata.annotations.fencelog\.io/replicas}'; }

image_of() { on_cluster get "$1" -o 'jsonpath={.spec.template.spec.containers[0].image}'; }
of_broker() { on_cluster get deployment/broker -o "jsonpath={.spec.template.spec$1}"; }
metadata=$(of_broker '.containers[0].args[2]')
credentials=$(of_broker '.volumes[?(@.name=="zookeeper-credentials")].secret.secretName')
make() { # make FILE IMAGE [SERVER]; an & in what is put in means itself
    sed -e "s|IMAGE|$2|" -e "s|SERVER|${3:-}|" -e "s|METADATA|${metadata//&/\\&}|" \
        -e "s|CREDENTIALS|${credentials:-none}|" "$jobs/$1" | on_cluster create -f -
}
remove_pods() { on_cluster delete pod -l app.kubernetes.io/name=zookeeper-restore --wait; }

remove_pods
trap remove_pods EXIT
image=$(image_of statefulset/zookeeper)
make zookeeper_backups.yaml "$image"
# A backup that is being made keeps the volume, on another node perhaps, for five minutes at most.
on_cluster wait --for=condition=ready --timeout=480s pod/zookeeper-backups
if (($# == 0)); then
    on_cluster exec zookeeper-backups -- ls /backup
    exit
fi
backup=/backup/$1
snapshot=$(on_cluster exec zookeeper-backups -- bash -c 'basename "$0"/snapshot.*' "$backup")
wanted=$(on_cluster exec zookeeper-backups -- bash -c 'sha256sum < "$0"' "$backup/$snapshot")

shall=() # How many pods each shall have.
for workload in "${workloads[@]}"; do
    replicas=$(running "$workload")
    noted=$(replicas_of "$workload") # By a run that did not end. It may have left ZooKeeper at a quorum.
    if ((replicas > 0)) && ! [[ $workload == */zookeeper && $noted && $replicas == $((noted / 2 + 1)) ]]; then
        noted=$replicas
    fi
    if [[ -z $noted ]]; then
        echo "$workload has no pods, and nothing says how many it shall have: scale it first" >&2
        exit 1
    fi
    shall+=("$noted")
    if ((replicas != noted)); then echo "$workload: $replicas pods, $noted when a run before this one began"; fi
done
servers=${shall[3]}

volumes_of() { on_cluster get pvc "data-zookeeper-$1" "log-zookeeper-$1" --ignore-not-found -o name; }
kept=() lost=()
for ((server = 0; server < servers; server++)); do
    volumes=$(volumes_of "$server")
    case $volumes in
        '') lost+=("$server") ;;
        *$'\n'*) kept+=("$server") ;;
        *) # One is half of what the server had, which nobody can start with.
            echo "zookeeper-$server has only $volumes: copy what you need of it, and delete it" >&2
            exit 1
            ;;
    esac
done

no_backups() { # Where the component was removed, there is only the volume.
    local job
    job=$(on_cluster get cronjob zookeeper-backup --ignore-not-found -o name)
    if [[ $job ]]; then on_cluster patch cronjob zookeeper-backup -p "{\"spec\": {\"suspend\": $1}}"; fi
}

echo "== everything stops"
no_backups true
for index in "${!workloads[@]}"; do
    workload=${workloads[index]}
    on_cluster annotate --overwrite "$workload" "fencelog.io/replicas=${shall[index]}"
    on_cluster scale "$workload" --replicas=0
done
has_ended() { on_cluster wait --for=delete pod -l "app.kubernetes.io/name in ($1)" --timeout=300s; }
has_ended 'broker, autorecovery, bookie, zookeeper'

set_aside() { # What a server has; its pod stays.
    pod=zookeeper-restore-$1
    make zookeeper_restore.yaml "$image" "$1"
    on_cluster wait --for=condition=ready --timeout=180s "pod/$pod"
    on_cluster exec "$pod" -- bash -euc 'now=$(date -u +%Y-%m-%dT%H-%M-%SZ)
        for volume in /data /datalog; do
            if [[ -e $volume/version-2 ]]; then mv $volume/version-2 $volume/before-$now; fi
        done'
}

if ((${#lost[@]} > 0)); then
    echo "== the StatefulSet makes volumes"
    # Two servers with empty ones are a quorum, for which the third one would give up what it has.
    for server in ${kept[@]+"${kept[@]}"}; do
        set_aside "$server"
        on_cluster delete "pod/$pod" --wait
    done
    on_cluster scale statefulset/zookeeper --replicas="$servers"
    for server in "${lost[@]}"; do
        looks=1 # one in 5 s, for 300 s
        until [[ $(volumes_of "$server") == *$'\n'* ]]; do
            if ((looks++ >= 60)); then
                echo "zookeeper-$server has no two volumes after 300 s: see what the StatefulSet says of them" \
                    "(kubectl -n fencelog describe statefulset/zookeeper), and run this again" >&2
                exit 1
            fi
            sleep 5
        done
    done
    on_cluster scale statefulset/zookeeper --replicas=0
    has_ended zookeeper
fi

echo "== the backup is given to zookeeper-0, the others are empty"
for ((server = 0; server < servers; server++)); do
    set_aside "$server"
    if ((server == 0)); then
        on_cluster exec zookeeper-backups -- cat "$backup/$snapshot" |
            on_cluster exec -i "$pod" -- bash -euc 'rm -rf /data/new; mkdir /data/new
                cat > /data/new/"$0"' "$snapshot"
        got=$(on_cluster exec "$pod" -- bash -c 'sha256sum < /data/new/"$0"' "$snapshot")
        [[ $got == "$wanted" ]]
        on_cluster exec "$pod" -- bash -euc 'sync; mv /data/new /data/version-2'
    fi
done
remove_pods

gets_ready() { # gets_ready WORKLOAD SECONDS; names the pods that do not
    if on_cluster rollout status "$1" --timeout="$2s"; then return; fi
    echo "$1 is not ready after $2 s. Of its pods are not:" >&2
    on_cluster get pods -l "app.kubernetes.io/name=${1#*/}" --no-headers |
        while read -r pod ready status _; do
            if [[ ${ready%/*} != "${ready#*/}" ]]; then echo "  $pod $ready $status" >&2; fi
        done
    return 1
}

# As many as are a quorum: there is none without zookeeper-0, which has the most. The rest get it from them.
echo "== ZooKeeper starts"
on_cluster scale statefulset/zookeeper --replicas=$((servers / 2 + 1))
if ! gets_ready statefulset/zookeeper 600; then
    echo "ZooKeeper has no quorum, and nothing else was started: have those pods start, and run this again" >&2
    exit 1
fi
on_cluster scale statefulset/zookeeper --replicas="$servers"

echo "== ids of ledgers that were given since are not given again"
job=$(make skip_ledger_ids.yaml "$(image_of deployment/broker)")
job=${job%% *}
if ! on_cluster wait --for=condition=complete --timeout=300s "$job"; then
    on_cluster logs "$job" >&2 || true
    echo "No ids were skipped, so no bookie and no broker was started: see why, and run this again" >&2
    exit 1
fi
on_cluster logs "$job" || true

# All of them before any is waited for: a bookie that the backup does not know never gets ready, and the
# rest serve without it. Self-healing needs no bookie, and gives those that are away their ten minutes.
echo "== everything starts"
for workload in statefulset/bookie deployment/autorecovery deployment/broker; do
    on_cluster scale "$workload" --replicas="$(replicas_of "$workload")"
done
for workload in "${workloads[@]}"; do
    on_cluster annotate "$workload" fencelog.io/replicas-
done
no_backups false
late=()
for workload in statefulset/zookeeper statefulset/bookie deployment/autorecovery deployment/broker; do
    # A bookie may take ten minutes to replay its journal.
    gets_ready "$workload" 660 || late+=("$workload")
done
echo "== ZooKeeper is what it was at $1"
if ((${#late[@]} > 0)); then
    echo "Everything was started, and is not ready in ${late[*]}: do not run this again. What to do is in" \
        "k8s/OPERATIONS.md, \"Bookies that a backup does not know\"" >&2
    exit 1
fi
