"""The package as a zip: what `--py-files` ships, and what programs in the runtime's Python import."""

from __future__ import annotations

import hashlib
import io
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

MOMENT = (1980, 1, 1, 0, 0, 0)
"""The time stamp of every entry, so that equal contents give equal zips."""


def package_zip() -> bytes:
    """The running package, whether it is imported from a folder or from a zip; the same bytes for the same sources."""
    return pack(_sources(resources.files("caffe_on_grid"), "caffe_on_grid"))


def folder_zip(folder: Path) -> bytes:
    """All files below `folder`, named relative to it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return pack((path.relative_to(folder).as_posix(), path.read_bytes()) for path in files)


def pack(entries: Iterator[tuple[str, bytes]]) -> bytes:
    """A zip of (name, content), deterministic."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as target:
        for name, content in entries:
            entry = zipfile.ZipInfo(name, MOMENT)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, content)
    return buffer.getvalue()


def _sources(folder: Any, name: str) -> Iterator[tuple[str, bytes]]:
    for child in sorted(folder.iterdir(), key=lambda entry: str(entry.name)):
        if child.is_dir() and child.name != "__pycache__":
            yield from _sources(child, f"{name}/{child.name}")
        elif child.is_file() and not child.name.endswith(".pyc"):
            yield f"{name}/{child.name}", child.read_bytes()


def cached_zip(environ: Mapping[str, str]) -> Path:
    """The package's zip in the user's cache, by its content; in a temporary folder where there can be no cache."""
    content = package_zip()
    name = f"caffe_on_grid-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    for folder in _caches(environ):
        path = folder / name
        if path.is_file() or _written(path, content):
            return path
    raise AssertionError("unreachable: the last folder raises when it cannot be written")


def _caches(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("HOME") or environ.get("XDG_CACHE_HOME"):
        yield Path(environ.get("XDG_CACHE_HOME") or Path(environ["HOME"]) / ".cache") / "caffe-on-grid"
    own = Path(tempfile.gettempdir()) / f"caffe-on-grid-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    yield own if own.stat().st_uid == os.getuid() else Path(tempfile.mkdtemp(prefix="caffe-on-grid-"))


def _written(path: Path, content: bytes) -> bool:
    """Whether `content` could be put at `path`, whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as part:
            part.write(content)
    except OSError:
        return False
    Path(part.name).replace(path)
    return True
