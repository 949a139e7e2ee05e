#!/usr/bin/env bash
# Builds dist/*.whl and runs the command from it in an environment that has nothing of the checkout: the dependencies
# are borrowed from .venv by a path file (its editable install is not followed from there).
set -euo pipefail
cd "$(dirname "$0")/.."
python=$PWD/.venv/bin/python
rm -rf dist build && "$python" -m pip wheel -q --disable-pip-version-check --no-deps -w dist .
fresh=$(mktemp -d) && trap 'rm -rf "$fresh"' EXIT
PYTHON=$python packaging/venv.sh "$fresh/venv"
"$fresh/venv/bin/python" -m pip install -q --disable-pip-version-check --no-deps --no-index dist/*.whl
site=$("$fresh/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$site/borrowed.pth"
cd "$fresh"
venv/bin/python -c 'import pathlib, sys, caffe_on_grid as c; p = pathlib.Path(c.__file__); sys.exit(None if p.is_relative_to(sys.prefix) else f"not the wheel: {p}")'
venv/bin/caffe-on-grid --version
echo "$OLDPWD/dist/$(ls "$OLDPWD/dist")"
