"""Shared libraries of an unpacked runtime: what is wanted and not there."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

FROM_THE_HOST = ("libcuda.", "libnvidia-", "libibverbs.", "librdmacm.", "libmlx5.", "libefa.", "libpsm2.")
"""Libraries that come with a node's drivers: an archive may want them without holding them."""


def missing_libraries(folder: Path) -> list[str]:
    """`FILE wants LIBRARY` for every shared library that neither the archive nor this machine has.

    A library that lies elsewhere in the archive counts as there: its user's users load it (wheels are built so).
    """
    files = [str(path) for path in folder.rglob("*") if _is_elf(path)]
    held = {path.name for path in folder.rglob("*.so*")}
    listing = subprocess.run(
        ["ldd", *files], env={"PATH": os.environ["PATH"], "LC_ALL": "C"}, capture_output=True, text=True, check=False
    ).stdout
    wants = _not_found(listing, files[0] if len(files) == 1 else "")
    return sorted(
        f"{os.path.relpath(file, folder)} wants {library}"
        for file, library in wants
        if library not in held and not library.startswith(FROM_THE_HOST)
    )


def _is_elf(path: Path) -> bool:
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def _not_found(listing: str, file: str) -> Iterator[tuple[str, str]]:
    """(file, library) of ldd's `=> not found` lines; ldd heads each file's lines with `FILE:` if there are several."""
    for line in listing.splitlines():
        if line.endswith(":") and not line.startswith("\t"):
            file = line[:-1]
        elif line.endswith("=> not found"):
            yield file, line.split()[0]
