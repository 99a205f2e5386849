#!/bin/sh
# Runs the pure tests on the other Pythons that are on this machine: stacks are 3.12 to 3.14, and the harness
# must run beside them. Each gets a virtual environment without torch; one that is not there is said to be skipped.
set -eu
cd "$(dirname "$0")/.."
for version in 3.12 3.13; do
    python=""
    for candidate in "python$version" "$HOME"/.pyenv/versions/"$version".*/bin/python; do
        if "$candidate" -c 'import venv' >/dev/null 2>&1; then python=$candidate; break; fi
    done
    if [ -z "$python" ]; then echo "SKIPPED: the pure tests on Python $version: it is not on this machine"; continue; fi
    venv=.venv/$version
    if [ ! -e "$venv/.done" ]; then
        "$python" -m venv "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable . 'pytest>=8.4' 'hypothesis>=6.150'
        touch "$venv/.done"
    fi
    "$venv/bin/python" -m pytest -q -p no:cacheprovider tests/pure
done
