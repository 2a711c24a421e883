#!/usr/bin/env bash
# Prints a Python that the project supports; `--accepts PATH` only answers whether PATH is one.
# $PYTHON, when set, is the only candidate.
set -euo pipefail

accepts() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

if [ "${1:-}" = "--accepts" ]; then
    accepts "$2"
    exit
fi

candidates=(python3 python3.13 python3.12 python3.11)
if [ -n "${PYTHON:-}" ]; then
    candidates=("$PYTHON")
fi
for candidate in "${candidates[@]}"; do
    if accepts "$candidate"; then
        if ! "$candidate" -c 'import ensurepip, venv' 2>/dev/null; then
            echo "error: $candidate has no venv or no pip (Debian: apt-get install python3-venv)" >&2
            exit 1
        fi
        echo "$candidate"
        exit 0
    fi
done
found="$("${candidates[0]}" --version 2>&1 || true)"
echo "error: tokenpath needs Python 3.11, 3.12 or 3.13; ${candidates[0]} is: ${found:-not found}." >&2
echo "Install one of them, or name it: make PYTHON=/path/to/python3.12 ..." >&2
exit 1
