#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --mem=0
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --signal=B:USR1@300
# A training on many machines: sbatch [OPTIONS OF SBATCH] examples/slurm.sh RUN_DIR --config NAME [KEYS OF fit]
#
# Type it where the project is, on a disk that all machines see. Variables: SERVERS, how many of the machines serve rollouts by vLLM
# (engine=VLLMServerEngine); GPUS_PER_SERVER; RANKS of each machine that trains, by default one for each of its GPUs; PYTHON.
# Five minutes before its time is up the run saves, and the job is queued again and goes on; so it does where a node is lost.
set -uo pipefail
# Lines of your cluster's own, such as module load, belong here.
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_ON_NODE:-1}"
export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000)) SERVER_PORT=$((30000 + SLURM_JOB_ID % 1000 * 16))
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" PYTHONUNBUFFERED=1
export SERVERS="${SERVERS:-0}" GPUS_PER_SERVER="${GPUS_PER_SERVER:-1}" PYTHON="${PYTHON:-python}"
export GPUS="${SLURM_GPUS_ON_NODE:-0}"
export RANKS="${RANKS:-$((GPUS > 0 ? GPUS : 1))}"
# of one machine
export EACH_SERVES=$((GPUS > GPUS_PER_SERVER ? GPUS / GPUS_PER_SERVER : 1))
mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
export TRAINERS=$((${#hosts[@]} - SERVERS)) FIRST="${hosts[0]}"

RUN="$(realpath -m -- "${1:?RUN_DIR, then keys of fit}")" || exit
shift
export RUN COD_LIGHTNING_CACHE="${COD_LIGHTNING_CACHE:-$(dirname -- "$RUN")/cache}"
export LAUNCH="$RUN/launch"  # the config, and all logs
export CONFIG="$LAUNCH/config-$SLURM_JOB_ID.yaml"  # a job that is queued again trains what it was submitted with
find "$LAUNCH" -maxdepth 1 -type l -delete 2>/dev/null  # logs are written, through no link
mkdir -p "$LAUNCH"
if [[ ! -s $CONFIG ]]; then
  served=()
  if ((SERVERS)); then
    served=(--data.engine.weights_folder "$LAUNCH/weights" --data.engine.wait_s 900 --data.engine.return_s 900)
  fi
  "$PYTHON" -m cod_lightning fit "${served[@]}" "$@" --print_config >"$CONFIG.part" || exit
  mv "$CONFIG.part" "$CONFIG"
fi

# The addresses of all servers, for the machines that are named.
addresses() {
  local host port all=()
  for host in "$@"; do
    for ((port = SERVER_PORT; port < SERVER_PORT + EACH_SERVES; port++)); do all+=("http://$host:$port"); done
  done
  (IFS=,; printf '[%s]' "${all[*]}")
}

# SIGTERM to the ranks, which then save and end; to the agent while it has none. torchrun's agent itself would give them 30 s.
stop_ranks() {
  interrupted=1
  local ranks=()
  read -ra ranks <"/proc/$1/task/$1/children" || true
  kill -TERM "${ranks[@]:-$1}" 2>/dev/null || true
}

# The training on this machine: number NODE_RANK of those that train, the first of them at FIRST.
train() {
  local agent code=0 interrupted=1 served=()
  if ((SERVERS)); then served=(--data.engine.init_args.urls "$URLS"); fi
  (trap '' USR1; exec "$PYTHON" -m torch.distributed.run --nnodes "$TRAINERS" --nproc_per_node "$RANKS" \
    --node_rank "$NODE_RANK" --master_addr "$FIRST" --master_port "$MASTER_PORT" \
    -m cod_lightning fit --config "$CONFIG" --trainer.default_root_dir "$RUN" --trainer.num_nodes "$TRAINERS" \
    --trainer.devices "$RANKS" --trainer.accelerator "$( ((GPUS)) && echo gpu || echo cpu)" --ckpt_path auto "${served[@]}") \
    >>"$LAUNCH/train.$NODE_RANK.log" 2>&1 &
  agent=$!
  trap 'stop_ranks "$agent"' TERM USR1
  while [[ $interrupted ]]; do
    interrupted=
    code=0
    wait "$agent" || code=$?
  done
  return "$code"
}

# The servers of this machine: number SERVER_RANK of those that serve.
serve() {
  exec "$PYTHON" -m cod_lightning serve --config "$CONFIG" --host 0.0.0.0 --port "$SERVER_PORT" \
    --num_servers "$EACH_SERVES" --gpus_per_server "$GPUS_PER_SERVER" \
    --logs "$LAUNCH/servers.$SERVER_RANK" >>"$LAUNCH/serve.$SERVER_RANK.log" 2>&1
}

listed() { (IFS=,; printf '%s' "$*"); }
steps=() servers='' stopping=''
finish() {
  local code=$?
  trap - EXIT
  kill -TERM "${steps[@]}" 2>/dev/null
  wait
  exit "$code"
}
trap finish EXIT
trap 'exit 143' TERM
if ((SERVERS)); then
  if [[ ! ${VLLM_API_KEY:-} ]]; then  # for this run of the job alone; it reaches the nodes by the environment
    VLLM_API_KEY="$(head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n')"
  fi
  URLS="$(addresses "${hosts[@]:TRAINERS}")"
  export VLLM_API_KEY URLS
  export -f serve
  # shellcheck disable=SC2016
  srun --nodes="$SERVERS" --ntasks="$SERVERS" --nodelist="$(listed "${hosts[@]:TRAINERS}")" \
    bash -c 'SERVER_RANK=$SLURM_NODEID serve' &
  servers=$!
  steps+=("$servers")
fi
export -f train stop_ranks
# shellcheck disable=SC2016
srun --nodes="$TRAINERS" --ntasks="$TRAINERS" --nodelist="$(listed "${hosts[@]:0:TRAINERS}")" --kill-on-bad-exit=1 \
  bash -c 'NODE_RANK=$SLURM_NODEID train' &
trainer=$!
steps+=("$trainer")
trap 'stopping=1; kill -USR1 "$trainer" 2>/dev/null' USR1

if [[ $servers ]]; then
  while kill -0 "$trainer" 2>/dev/null && kill -0 "$servers" 2>/dev/null; do wait -n "$trainer" "$servers"; done
  if kill -0 "$trainer" 2>/dev/null; then
    echo "error: the servers ended before the training did; see $LAUNCH/serve.*.log" >&2
    exit 1
  fi
else
  while kill -0 "$trainer" 2>/dev/null; do wait "$trainer"; done
fi
wait "$trainer"
code=$?
if [[ $stopping && $code != 0 ]]; then
  scontrol requeue "$SLURM_JOB_ID"
elif [[ $code != 0 ]]; then
  echo "error: the training ended with code $code; see $LAUNCH/train.*.log" >&2
fi
exit "$code"
