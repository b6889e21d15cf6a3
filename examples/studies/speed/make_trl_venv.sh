#!/usr/bin/env bash
# Makes the virtual environment of the peer that bench_end_to_end.py compares with: make_trl_venv.sh [FOLDER].
# About a minute, 1.5 GB. Exit code 3: it cannot be had here.
set -euo pipefail
root="$(cd "$(dirname "$0")/../../.." && pwd)"
venv="${1:-$root/.venv-trl}"
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${TORCH:-torch==2.13.0}" "${TRL:-trl==1.16.0}" || exit 3
