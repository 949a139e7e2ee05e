"""Snapshots in a storage: a model, a solver state and, written last, the manifest that says they are complete."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.report import Manifest
from caffe_on_grid.storage import paths, solverstate
from caffe_on_grid.storage.api import Storage
from caffe_on_grid.storage.registry import connect

_MANIFEST = re.compile(r".*_iter_(\d+)\.json\Z", re.DOTALL)
_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class FetchedSnapshot:
    """A snapshot on local disk; `manifest` is None where Caffe itself wrote it."""

    state: Path
    model: Path
    manifest: Optional[Manifest]


def publish(folder: str, prefix: str, files: tuple[Path, Path], fields: Mapping[str, Any]) -> str:
    """Copy (model, state) into `folder` under their own names, then `<prefix>_iter_<iteration>.json`; gives its URI.

    `fields` are the manifest's own: iteration, world, seed, run_id, batches, batch, test_passes, solver_type.
    Stopped at any point, it leaves no manifest, so nothing that looks complete. An older manifest of the same name is
    removed before its files are replaced.
    """
    manifest = codec.decode(Manifest, {**fields, **_described(files)}, "snapshot")
    storage = connect(folder)
    target = paths.join(folder, f"{prefix}_iter_{manifest.iteration}.json")
    if storage.exists(target):
        storage.remove(target)
    for file in files:
        storage.publish(file, paths.join(folder, file.name))
    storage.write(codec.dumps(manifest, indent=2).encode() + b"\n", target)
    return target


def newest(folder: str) -> Optional[tuple[str, Manifest]]:
    """(manifest URI, manifest) of the highest iteration whose files are there with the sizes it states, or None."""
    storage = connect(folder)
    if not storage.is_folder(folder):
        return None
    return next(_complete(storage, folder, _by_iteration(storage.names(folder))), None)


def find(state_uri: str) -> tuple[Optional[Manifest], str]:
    """The manifest beside a `.solverstate`, if there is one, and the URI of its model; ConfigError if that is missing.

    Without a manifest the model is the one that the state's learned_net names, looked for beside the state first and
    then where the path says; beside `X.solverstate.h5` it is `X.caffemodel.h5`.
    """
    storage = connect(state_uri)
    if not storage.exists(state_uri):
        raise ConfigError(f"{state_uri}: no such solver state; check -snapshot")
    folder = paths.parent(state_uri)
    manifest_uri = paths.join(folder, f"{paths.stem(state_uri)}.json")
    if not storage.exists(manifest_uri):
        return None, _named_model(storage, state_uri)
    manifest = _read(storage, manifest_uri)
    if manifest.state != paths.basename(state_uri) or not _is_complete(storage, folder, manifest):
        raise ConfigError(f"{manifest_uri}: its files are missing or of another size; take another snapshot")
    return manifest, paths.join(folder, manifest.model)


def fetch(state_uri: str, into: Path) -> FetchedSnapshot:
    """Copy a snapshot into another folder; ConfigError where a file is not the one that the manifest was made of.

    A binary state's learned_net leads to the fetched model afterwards, whatever path Caffe had written into it.
    """
    here = paths.local_path(state_uri)
    if here is not None and here.parent.resolve() == into.resolve():
        raise ValueError(f"{into}: a snapshot is fetched into another folder than its own, which stays untouched")
    manifest, model_uri = find(state_uri)
    into.mkdir(parents=True, exist_ok=True)
    state, model = (_fetch_one(uri, into, manifest) for uri in (state_uri, model_uri))
    _point_at(state, model)
    return FetchedSnapshot(state, model, manifest)


def digest(path: Path) -> str:
    """sha256 of a file, in hexadecimal."""
    total = hashlib.sha256()
    with path.open("rb") as content:
        while block := content.read(_READ_BYTES):
            total.update(block)
    return total.hexdigest()


def _described(files: tuple[Path, Path]) -> dict[str, Any]:
    model, state = files
    return {
        "model": model.name,
        "state": state.name,
        "sizes": {file.name: file.stat().st_size for file in files},
        "sha256": {file.name: digest(file) for file in files},
    }


def _by_iteration(names: list[str]) -> list[str]:
    """The names that are a manifest's, highest iteration first."""
    found = [(int(match[1]), name) for name in names if (match := _MANIFEST.match(name))]
    return [name for _, name in sorted(found, reverse=True)]


def _complete(storage: Storage, folder: str, names: list[str]) -> Iterator[tuple[str, Manifest]]:
    for name in names:
        uri = paths.join(folder, name)
        try:
            manifest = _read(storage, uri)
        except ConfigError:  # another program's JSON, or removed meanwhile: no snapshot of ours
            continue
        if _is_complete(storage, folder, manifest):
            yield uri, manifest


def _read(storage: Storage, uri: str) -> Manifest:
    try:
        text = storage.read(uri).decode()
    except UnicodeDecodeError:
        raise ConfigError(f"{uri}: not a snapshot's manifest (not text)") from None
    return codec.loads(Manifest, text, uri)


def _is_complete(storage: Storage, folder: str, manifest: Manifest) -> bool:
    return all(_has_size(storage, folder, name, manifest.sizes.get(name)) for name in (manifest.model, manifest.state))


def _has_size(storage: Storage, folder: str, name: str, size: Optional[int]) -> bool:
    uri = paths.join(folder, name)
    if not name or paths.basename(name) != name or not storage.exists(uri) or storage.is_folder(uri):
        return False
    return storage.size(uri) == size


def _named_model(storage: Storage, state_uri: str) -> str:
    folder, stem = paths.parent(state_uri), paths.stem(state_uri)
    if state_uri.endswith(".h5"):
        candidates = [paths.join(folder, f"{stem}.caffemodel.h5")]
    else:
        named = solverstate.learned_net(storage.read(state_uri), state_uri) or f"{stem}.caffemodel"
        candidates = [paths.join(folder, paths.basename(named)), named]
    for uri in candidates:
        if connect(uri).exists(uri):
            return uri
    raise ConfigError(f"{state_uri}: its model is missing (looked for {' and '.join(dict.fromkeys(candidates))})")


def _fetch_one(uri: str, into: Path, manifest: Optional[Manifest]) -> Path:
    path = into / paths.basename(uri)
    connect(uri).fetch(uri, path)
    if manifest is not None and digest(path) != manifest.sha256.get(path.name):
        raise ConfigError(f"{uri}: its content is not what its manifest was written for; take another snapshot")
    return path


def _point_at(state: Path, model: Path) -> None:
    """Make a binary state name `model`; HDF5 states keep the name that Caffe wrote."""
    if state.suffix == ".h5":
        return
    data = state.read_bytes()
    if Path(solverstate.learned_net(data, str(state))).resolve() != model.resolve():
        connect(str(state)).write(data + solverstate.naming(str(model.resolve())), str(state))
