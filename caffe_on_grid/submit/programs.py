"""Programs of other rooms, run in the runtime's Python in place of this process."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn, Optional

from caffe_on_grid.submit import archive, package

KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TZ", "USER", "NO_COLOR", "TERM", "COLUMNS")
"""Variables that the program inherits, beside OPENBLAS_*, OMP_*, GLOG_* and CUDA_*."""

FAMILIES = ("OPENBLAS_", "OMP_", "GLOG_", "CUDA_")


def command(module: str, words: Sequence[str], runtime: Path) -> list[str]:
    """The program's arguments; pure."""
    return [str(runtime / "bin" / "python"), "-m", module, *words]


def environment(environ: Mapping[str, str], package_zip: Path) -> dict[str, str]:
    """The program's variables: this package from its zip, nothing of the caller's Python."""
    kept = {name: value for name, value in environ.items() if name in KEPT or name.startswith(FAMILIES)}
    return {**kept, "PYTHONPATH": str(package_zip), "PYTHONNOUSERSITE": "1"}


def answer(
    module: str, words: Sequence[str], runtime: Optional[str], environ: Mapping[str, str], engine: str = "auto"
) -> tuple[int, str]:
    """Run `module` as `become` does and wait: its exit code, and what it wrote to stdout."""
    found = archive.locate(runtime, engine, False)
    packed = package.cached_zip(environ)
    done = subprocess.run(
        command(module, words, found), env=environment(environ, packed), stdout=subprocess.PIPE, text=True, check=False
    )
    return done.returncode, done.stdout


def become(
    module: str, words: Sequence[str], runtime: Optional[str], environ: Mapping[str, str], engine: str = "auto"
) -> NoReturn:
    """Replace this process by `module` in the Python of a runtime for `engine`; its exit code is the command's.

    For a GPU, and for HDF5 files, PyTorch's runtime is looked for first. Raises EnvironmentFault where there is none.
    """
    torch_first = any(word in ("-gpu", "--gpu") or word.endswith(".h5") for word in words)
    found = archive.locate(runtime, engine, torch_first)
    packed = package.cached_zip(environ)
    argv = command(module, words, found)
    os.execve(argv[0], argv, environment(environ, packed))
