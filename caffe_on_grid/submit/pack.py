"""The verb `pack`: builds a runtime archive with the checkout's own recipe and proves it elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import EnvironmentFault, UsageError
from caffe_on_grid.submit import archive

FLAVOURS: dict[str, tuple[str, ...]] = {"caffe": ("slim", "full"), "torch": ("gpu", "cpu")}
"""Engine → its flavours, the usual one first.

slim: what ranks need; full: scikit-image, SciPy, h5py, PyYAML and networkx too, for Python layers. gpu: torch with all
of CUDA that it uses; cpu: without what only a GPU wants.
"""

NAMES = {"caffe": "caffe_on_grid.tgz", "torch": "caffe_on_grid_torch.tgz"}
"""Engine → what its archive is called."""


def pack(out: Optional[Path] = None, flavour: Optional[str] = None, engine: str = "caffe") -> Path:
    """Build `out`, unpack it beside and verify it there; returns `out`. The build speaks on stderr."""
    if engine not in FLAVOURS:
        raise UsageError(f"--engine {engine}: there is {' and '.join(FLAVOURS)}")
    flavour = flavour or FLAVOURS[engine][0]
    if flavour not in FLAVOURS[engine]:
        raise UsageError(f"--flavour {flavour}: there is {' and '.join(FLAVOURS[engine])}")
    out = (out or Path(NAMES[engine])).absolute()
    _build(out, flavour, engine)
    with tempfile.TemporaryDirectory(prefix=".caffe-on-grid-", dir=out.parent) as elsewhere:
        archive.verify(archive.unpack(out, Path(elsewhere)), engine=engine)
    return out


def _build(out: Path, flavour: str, engine: str) -> None:
    recipe = archive.checkout() / "packaging" / "runtime" / "build.sh"
    if not recipe.exists():
        raise EnvironmentFault(
            "pack needs the source checkout, and this is an installed package: "
            f"run `make {archive.RECIPES[engine]}` in a checkout"
        )
    env = {**os.environ, "OUT": str(out), "ENGINE": engine, "FLAVOUR": flavour, "PYTHON": sys.executable}
    done = subprocess.run([str(recipe)], env=env, stdout=sys.stderr, check=False)
    if done.returncode:
        raise EnvironmentFault(
            f"{recipe}: the build of the runtime ended with code {done.returncode}; its last line says why"
        )
