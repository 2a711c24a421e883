#!/usr/bin/env bash
# Writes requirements/lock.txt (run time) and requirements/dev-lock.txt (run time + development).
# Universal: one version of each package for Python 3.11 to 3.13, hashes of every file it has on every
# platform. The lock names no index: pip asks the one that its user has set, and the hashes decide.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
unset UV_FIND_LINKS UV_INDEX UV_INDEX_URL UV_EXTRA_INDEX_URL

options=(
    --universal --python-version 3.11 --fork-strategy fewest --generate-hashes --no-config
    --no-annotate --no-header --no-emit-index-url --no-emit-find-links --quiet
)
uv pip compile "${options[@]}" "$@" pyproject.toml -o requirements/lock.txt
uv pip compile "${options[@]}" "$@" pyproject.toml --group dev -c requirements/lock.txt \
    -o requirements/dev-lock.txt
