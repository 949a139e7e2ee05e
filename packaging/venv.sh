#!/usr/bin/env bash
# Makes a virtual environment with pip in it, also where Debian's python3 comes without ensurepip and pip.
#
#   venv.sh FOLDER       PYTHON: the interpreter (default: python3)
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
. "$HERE/apt.sh"
VENV=$1 PYTHON=${PYTHON:-python3}

have "$PYTHON" || die 4 "no $PYTHON on PATH: install Python 3.9 or newer, or set PYTHON"
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || die 4 "$("$PYTHON" --version) is too old: set PYTHON to 3.9 or newer"

# Debian packs pip's wheel apart; run from there, it installs the index's pip into the environment.
bootstrap_pip() {
  local work package wheels
  work=$(mktemp -d) && trap "rm -rf '$work'" EXIT
  private_apt "$work/apt" "give $PYTHON the modules ensurepip or pip"
  for package in python3-pip-whl python-pip-whl; do
    if candidate $package; then unpack "$work/root" $package; fi
  done
  wheels=$(find "$work/root" -name '*.whl' -printf '%p:' 2> /dev/null || true)
  [ -n "$wheels" ] || die 4 "$PYTHON has no ensurepip, and apt offers no python3-pip-whl: install python3-venv"
  PYTHONPATH=${wheels%:} "$VENV/bin/python" -m pip install -q --ignore-installed pip
}

"$PYTHON" -m venv --without-pip "$VENV"
"$VENV/bin/python" -m pip --version > /dev/null 2>&1 || "$VENV/bin/python" -m ensurepip -q > /dev/null 2>&1 || bootstrap_pip
