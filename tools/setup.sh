#!/usr/bin/env bash
# Makes a virtual environment in the folder $1 with a Python that is new enough.
set -euo pipefail

folder=$1
python=""
for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
    [ -n "$candidate" ] && command -v "$candidate" > /dev/null || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Python 3.11 or newer is needed: install it, or name it: make PYTHON=/path/to/python" >&2
    exit 1
fi

# Debian and Ubuntu ship Python without what makes environments.
if ! "$python" -c 'import ensurepip, venv' 2> /dev/null; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    become_root=""
    [ "$(id -u)" = 0 ] || become_root="sudo"
    if ! command -v apt-get > /dev/null; then
        echo "$python cannot make environments: install its venv module" >&2
        exit 1
    fi
    echo "Installing python$version-venv, which $python needs to make an environment"
    $become_root apt-get update -qq
    $become_root apt-get install -qq -y "python$version-venv" > /dev/null
fi

echo "Setting up $folder with $("$python" --version); it takes a few minutes and 6 GB the first time"
"$python" -m venv "$folder"
