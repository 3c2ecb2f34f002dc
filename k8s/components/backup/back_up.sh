#!/bin/bash
# Makes a backup of ZooKeeper: joins its servers as an observer, which gets a snapshot of everything and
# has no vote, keeps that snapshot, and leaves. Needs nothing but bash, coreutils and flock.
#
#   /backup/2026-11-23T20-15-00Z/snapshot.1000002a1     named after the last change that it has
set -euo pipefail

# One at a time, also where one is made by hand: all observers have the same number, and each removes
# what one that was interrupted has left.
exec 9> /backup/.lock
flock 9

place=/tmp/observer
observer=255 # More than any server has: of two, the one with the larger number connects.
mkdir -p "$place/data"
echo "$observer" > "$place/data/myid"
# Without what servers have for clients: this has none, and may have no certificate.
while read -r line; do
    case $line in
        dataDir=* | dataLogDir=* | metricsProvider.* | clientPort* | secureClientPort*) ;;
        serverCnxnFactory=* | ssl.keyStore.* | ssl.trustStore.* | ssl.clientAuth=*) ;;
        *) echo "$line" ;;
    esac
done < /conf/zoo.cfg > "$place/zoo.cfg"
cat >> "$place/zoo.cfg" << END
dataDir=$place/data
clientPort=2181
clientPortAddress=127.0.0.1
peerType=observer
server.$observer=127.0.0.1:2888:3888:observer
END

zkServer.sh start-foreground "$place/zoo.cfg" &
server=$!
trap 'kill $server 2> /dev/null || true' EXIT

says() { (exec 3<> /dev/tcp/127.0.0.1/2181 && printf srvr >&3 && cat <&3) 2> /dev/null; }
# It serves only after the snapshot that it was sent has been written and synced.
until [[ $(says) == *"Mode: observer"* ]]; do
    kill -0 "$server" # It has ended: so does this, with an error.
    sleep 1
done
state=$(says)
nodes=${state##*Node count: }
((nodes > 5)) || { echo "ZooKeeper is empty: no backup" >&2; exit 1; } # It has so many of its own.
kill "$server"
wait "$server" || true

# Two: what it had when it started, nothing, and what it was sent.
newest=$(ls -t "$place"/data/version-2/snapshot.* | head -n 1)
[[ $newest != *snapshot.0 && -s $newest ]]
bytes=$(stat -c %s "$newest")
name=$(date -u +%Y-%m-%dT%H-%M-%SZ)
copy=/backup/.$name

shopt -s nullglob
keep_newest() {
    local all=(/backup/20*) old
    for ((old = 0; old < ${#all[@]} - $1; old++)); do
        rm -r "${all[old]}"
        echo "removed ${all[old]}"
    done
}
copy_newest() { # Leaves nothing where it fails.
    rm -rf /backup/.20* # One that was interrupted.
    if mkdir "$copy" && cp "$newest" "$copy" && sync "$copy/${newest##*/}"; then return; fi
    rm -rf "$copy"
    return 1
}

# The oldest go first, as the volume may have no space beside them; the last one stays until there is
# another.
keep_newest $((KEPT_BACKUPS > 2 ? KEPT_BACKUPS - 1 : 1))
if ! copy_newest; then
    space=$(df --output=avail -B1 /backup | tail -n 1)
    all=(/backup/20*)
    # Where it is not for want of space, nothing is given up.
    if ((space >= 2 * bytes || ${#all[@]} < 2)); then
        echo "no backup: $bytes bytes could not be written, with $space free" >&2
        exit 1
    fi
    echo "the volume is full: it holds fewer than $KEPT_BACKUPS backups" >&2
    keep_newest $((${#all[@]} - 1))
    copy_newest
fi
sync
mv "$copy" "/backup/$name"
echo "$state"
echo "backup $name: ${newest##*/}, $bytes bytes"
keep_newest "$KEPT_BACKUPS"
