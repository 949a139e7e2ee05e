"""The verb `pack`: builds a runtime archive with the checkout's own recipe and proves it elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from caffe_on_grid.errors import EnvironmentFault, UsageError
from caffe_on_grid.submit import archive

FLAVOURS = ("slim", "full")
"""slim: what ranks need; full: scikit-image, SciPy, h5py, PyYAML and networkx too, for Python layers."""


def pack(out: Path, flavour: str = "slim") -> Path:
    """Build `out`, unpack it in another place and verify it there; returns `out`. The build speaks on stderr."""
    if flavour not in FLAVOURS:
        raise UsageError(f"--flavour {flavour}: there is {' and '.join(FLAVOURS)}")
    out = out.absolute()
    _build(out, flavour)
    with tempfile.TemporaryDirectory(prefix="caffe-on-grid-") as elsewhere:
        archive.verify(archive.unpack(out, Path(elsewhere)))
    return out


def _build(out: Path, flavour: str) -> None:
    recipe = archive.checkout() / "packaging" / "runtime" / "build.sh"
    if not recipe.exists():
        raise EnvironmentFault(
            "pack needs the source checkout, and this is an installed package: run `make archive` in a checkout"
        )
    env = {**os.environ, "OUT": str(out), "FLAVOUR": flavour, "PYTHON": sys.executable}
    done = subprocess.run([str(recipe)], env=env, stdout=sys.stderr, check=False)
    if done.returncode:
        raise EnvironmentFault(
            f"{recipe}: the build of the runtime ended with code {done.returncode}; its last line says why"
        )
