#!/bin/bash
# A job on two Ray nodes of this machine, with one core each.
#
#   two_nodes.sh run DIR --features x.npy --edges edges.npy --labels predicted.npy
#   two_nodes.sh resume DIR
set -euo pipefail
host=127.0.0.1 port=${PORT:-6379}

# Whoever knows the token can run programs on the nodes (Ray 2.52 and later).
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")

# With --block, a node lives as long as its command, which is ended here in any case.
trap 'kill $(jobs -p); wait' EXIT
node() { ray start --num-cpus 1 --disable-usage-stats --block "${@:2}" > "$1.log" 2>&1 & }

node head --head --port "$port" --include-dashboard=false
for _ in {1..60}; do
    (: < "/dev/tcp/$host/$port") 2> /dev/null && break
    sleep 1
done
node second --address "$host:$port"
for _ in {1..60}; do # a short job would end before a slow node is there
    grep -qs "Ray runtime started" second.log && break
    sleep 1
done

cfe-faiss scale "$@" --executor ray --address "$host:$port"
