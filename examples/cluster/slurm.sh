#!/bin/bash
# A job on the nodes of a Slurm allocation, over a folder that all of them see; submitted again, it goes on.
#
#   sbatch slurm.sh run DIR --features x.npy --edges edges.npy --labels predicted.npy --memory 200GB
#SBATCH --job-name=evidence
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --mem=256G
#SBATCH --time=12:00:00
#SBATCH --requeue
set -euo pipefail
# This script runs on the first node. An own port for each job, since others may share the node.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
port=$((6400 + SLURM_JOB_ID % 3000))

# Whoever knows the token can run programs on the nodes (Ray 2.52 and later); srun passes it on.
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN
RAY_AUTH_TOKEN=$(python -c "import secrets; print(secrets.token_hex(32))")

trap 'kill $(jobs -p); wait' EXIT
node=(ray start --num-cpus="$SLURM_CPUS_PER_TASK" --disable-usage-stats --block)

srun --nodes=1 --ntasks=1 --nodelist="$head" "${node[@]}" --head --port="$port" --include-dashboard=false &
for _ in {1..120}; do
    (: < "/dev/tcp/$head/$port") 2> /dev/null && break
    sleep 1
done
if ((SLURM_JOB_NUM_NODES > 1)); then
    others=$((SLURM_JOB_NUM_NODES - 1))
    srun --nodes="$others" --ntasks="$others" --exclude="$head" "${node[@]}" --address="$head:$port" &
fi

# Nodes that join while it runs get tasks, too.
cfe-faiss scale "$@" --executor ray --address "$head:$port"
