"""What every job needs and none changes: uploaded once per content to the user's folder on the default store.

::

    <home>/.caffe-on-grid/<sha256>.tgz                 a runtime
    <home>/.caffe-on-grid/<sha256>.zip                 Spark's jars, where the site has not put them anywhere
    <home>/.caffe-on-grid/<sha256>/<name>              this package, pyspark.zip, py4j

Nothing there is ever changed, so that a job which uses it is not disturbed; what is no longer wanted may be removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.storage import hadoop, paths
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.submit import archive
from caffe_on_grid.submit.argv import PACKAGE_ZIP, Site

FOLDER = ".caffe-on-grid"
JARS = ("spark.yarn.archive", "spark.yarn.jars")
"""Settings by which a site says where Spark's jars are."""

TOLD_BYTES = 8 << 20
"""An upload of more takes long enough to be told of."""

PYTHON_ARCHIVES = "PYSPARK_ARCHIVES_PATH"


@dataclass(frozen=True)
class Hub:
    """The user's folder of uploads; `dry`: nothing is uploaded, what is not there is named where it lies here."""

    folder: str
    dry: bool
    note: Callable[[str], None]

    def file(self, path: Path, digest: str, name: str) -> str:
        """The URI of a local file's content, uploaded under `name` unless it is there; a half upload is never seen."""
        uri = paths.join(self.folder, name)
        storage = connect(uri)
        if storage.exists(uri) and storage.size(uri) == path.stat().st_size:
            return uri
        if self.dry:
            return str(path)
        if path.stat().st_size > TOLD_BYTES:
            self.note(f"uploading {path.name} ({path.stat().st_size >> 20} MiB) to {uri}, once for all jobs")
        storage.publish(path, uri)
        return uri


def hub(dry: bool, note: Callable[[str], None], proxy_user: Optional[str]) -> Optional[Hub]:
    """The user's hub; None where there is no shared default store, or the job is another user's."""
    if hadoop.default_fs() is None or proxy_user:
        return None
    return Hub(hadoop.qualify(FOLDER), dry, note)


def share(found: Site, settings: Mapping[str, str], environ: Mapping[str, str], place: Optional[Hub]) -> Site:
    """`found` with what is in the hub named there.

    `settings`: Spark's, the site's and the user's; a runtime archive given as `hdfs:`, `local:` or the like is taken as
    it is. ConfigError for an archive that is not there or is none.
    """
    packed = runtime(found.archive, place) if found.archive else None
    if place is None:
        return replace(found, archive=packed)
    package = Path(found.file(PACKAGE_ZIP))
    digest = archive.sha256(package)
    return replace(
        found,
        archive=packed,
        package=place.file(package, digest, f"{digest}/{PACKAGE_ZIP}"),
        spark={}
        if any(settings.get(key) for key in JARS)
        else _jars(Path(found.spark_home), Path(found.folder), place),
        python_archives=environ.get(PYTHON_ARCHIVES) or _python(Path(found.spark_home), place),
    )


def runtime(named: str, place: Optional[Hub]) -> str:
    """The URI of a runtime archive for executors."""
    scheme = paths.scheme(named)
    if scheme == "local":
        return named
    local = paths.local_path(named)
    if local is None:
        _check_remote(named)
        return named
    path = local.expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"--runtime {named}: there is no such archive; `caffe-on-grid pack` makes one")
    return _runtime(path, place) if place else str(path)


def _check_remote(uri: str) -> None:
    storage = connect(uri)
    if not storage.exists(uri):
        raise ConfigError(f"--runtime {uri}: there is no such archive; `caffe-on-grid pack` makes one")
    if storage.is_folder(uri):
        raise ConfigError(f"--runtime {uri}: is a folder; name an archive (.tgz)")


def here(named: str) -> str:
    """A runtime archive on this machine, for a driver here; one on a remote store is copied to the user's cache."""
    scheme, _, path = paths.split(named)
    if scheme in ("", "file", "local"):
        return path
    _check_remote(named)
    storage = connect(named)
    name = hashlib.sha256(f"{named} {storage.size(named)}".encode()).hexdigest()
    copy = archive.user_cache() / "archives" / f"{name}.tgz"
    if not copy.is_file():
        copy.parent.mkdir(parents=True, exist_ok=True)
        storage.fetch(named, copy)
    return str(copy)


def _runtime(path: Path, place: Hub) -> str:
    """An archive is looked through before its first upload: a broken one would only be noticed in its containers."""
    digest = remembered(path, lambda: archive.sha256(path))
    name = f"{digest}.tgz"
    uri = paths.join(place.folder, name)
    if not connect(uri).exists(uri):
        check_archive(path)
    return place.file(path, digest, name)


def check_archive(path: Path) -> None:
    """Read a runtime archive through: ConfigError where it is cut short, no gzipped tar, unsafe, lacks bin/python."""
    try:
        with tarfile.open(path, "r:gz") as tar:
            members = archive.read_through(tar)
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise ConfigError(f"{path}: not a runtime archive ({error}): `caffe-on-grid pack` makes one") from error
    archive.check_members(members, str(path))
    if not any(posixpath.normpath(member.name) == "bin/python" for member in members):
        raise ConfigError(f"{path}: not a runtime archive (no bin/python in it): `caffe-on-grid pack` makes one")


def _jars(home: Path, folder: Path, place: Hub) -> dict[str, str]:
    """Spark's jars as one uncompressed zip: jars are compressed already."""
    jars = sorted((home / "jars").glob("*.jar"))
    digest = remembered(home / "jars", lambda: _digest(jars))
    name = f"{digest}.zip"
    uri = paths.join(place.folder, name)
    if connect(uri).exists(uri):
        return {"spark.yarn.archive": uri}
    if place.dry:
        return {}
    made = folder / "spark-jars.zip"
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as target:
        for jar in jars:
            target.write(jar, jar.name)
    place.file(made, digest, name)
    made.unlink()
    return {"spark.yarn.archive": uri}


def _digest(jars: list[Path]) -> str:
    total = hashlib.sha256()
    for jar in jars:
        total.update(f"{jar.name} {archive.sha256(jar)}\n".encode())
    return total.hexdigest()


def _python(home: Path, place: Hub) -> Optional[str]:
    """Spark's own Python files; None where this Spark keeps them elsewhere, so that it looks for them itself."""
    files = [home / "python" / "lib" / "pyspark.zip", *sorted((home / "python" / "lib").glob("py4j-*-src.zip"))]
    if len(files) != 2 or not all(file.is_file() for file in files):
        return None
    digests = [remembered(file, _sha256_of(file)) for file in files]
    return ",".join(place.file(file, d, f"{d}/{file.name}") for file, d in zip(files, digests))


def _sha256_of(path: Path) -> Callable[[], str]:
    return lambda: archive.sha256(path)


# --- Digests ---


def remembered(path: Path, digest: Callable[[], str]) -> str:
    """`digest()` of a file or folder, remembered in the user's cache for as long as its sizes and times stay."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    seal = hashlib.sha256(repr(facts).encode()).hexdigest()
    memory = archive.user_cache() / "digests.json"
    known = _read(memory)
    entry = known.get(str(path.absolute()))
    if isinstance(entry, list) and entry[0] == seal:
        return str(entry[1])
    value = digest()
    with contextlib.suppress(OSError):  # no cache to be had: it is computed again
        memory.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({**known, str(path.absolute()): [seal, value]}).encode()
        connect(str(memory)).write(text, str(memory))
    return value


def _read(memory: Path) -> dict[str, list[str]]:
    try:
        found = json.loads(memory.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
