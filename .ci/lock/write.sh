#!/usr/bin/env bash
# Writes build.txt, run.txt, test.txt and dev.txt beside this file: what `make` installs, by version and hash, for Python 3.11
# and newer on any platform. Each has what those before it lack on some platform.
# torch is left out, since machines differ in its build; what every build of it needs is in, CUDA's packages are not.
set -euo pipefail
cd "$(dirname "$0")/../.."
scratch="$(mktemp -d)"
trap 'rm -rf "$scratch"' EXIT
"${PYTHON:-python3}" -m venv "$scratch/uv"
"$scratch/uv/bin/python" -m pip install --quiet --disable-pip-version-check uv
echo "torch; python_version < '3'" >"$scratch/without.txt"
printf '%s\n' hatchling editables 'setuptools>=77.0.3' wheel >"$scratch/build.in" # setuptools builds antlr4
printf '%s\n' 'sympy>=1.13.3' 'networkx>=2.5.1' fsspec typing-extensions >"$scratch/run.in"
: >"$scratch/before.txt"

write() { # write TIER [SOURCES AND OPTIONS]: the lock of a tier
    local tier="$1"
    shift
    mapfile -t before < <(sed -nE 's/^([A-Za-z0-9._-]+)==[^;]*\\$/--no-emit-package=\1/p' "$scratch/before.txt")
    "$scratch/uv/bin/uv" pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest --generate-hashes \
        --no-annotate --custom-compile-command 'make lock' --override "$scratch/without.txt" \
        --constraint "$scratch/before.txt" "${before[@]}" --output-file "$scratch/$tier.txt" "$@"
    cat "$scratch/$tier.txt" >>"$scratch/before.txt"
    cp "$scratch/$tier.txt" ".ci/lock/$tier.txt"
}

write build "$scratch/build.in"
write run pyproject.toml "$scratch/run.in"
write test pyproject.toml --extra test
write dev pyproject.toml --extra test --extra dev
