"""Runtime archives on the gateway: unpacked once, checked, found.

An archive is a gzipped tar whose root holds `bin/python`: the layout of `make archive`, or of conda-pack.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import json
import os
import posixpath
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional

import caffe_on_grid
from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.storage import local
from caffe_on_grid.submit.libraries import missing_libraries

READY = ".caffe-on-grid-ready"
"""Written into a folder when all of its archive is there."""

RUNTIMES: dict[str, tuple[str, ...]] = {"caffe": ("runtime",), "torch": ("runtime-torch", "venv-torch")}
"""Engine → names under which a runtime that has it is looked for, in order."""

RECIPES = {"caffe": "archive", "torch": "archive-torch"}
"""Engine → what `make` calls its archive."""

_IMPORTS = ("mpi4py.MPI", "lmdb", "cv2", "google.protobuf", "numpy")
_OF_ENGINE = {"caffe": ("hdfs", "hdfs_native"), "torch": ("hdfs", "hdfs_native", "h5py", "onnx")}
_PROBE = f"""
import importlib, importlib.util, json, sys
found = {{}}
def there(name):
    spec = importlib.util.find_spec(name)
    return spec is not None and spec.origin is not None  # no origin: a mere folder of that name
engines = sys.argv[1:] or [name for name in {tuple(RUNTIMES)!r} if there(name)] or {list(RUNTIMES)!r}
more = [name for engine in engines for name in {_OF_ENGINE!r}[engine]]
for name in [*engines, *{_IMPORTS!r}, *more]:
    try:
        if not there(name):
            raise ImportError("No module named %r" % name)
        found[name] = importlib.import_module(name)
    except Exception as error:
        sys.exit("%s: %s" % (name, error))
facts = {{name.split(".")[-1]: module.__version__ for name, module in found.items() if hasattr(module, "__version__")}}
mpi = found["mpi4py.MPI"].Get_library_version().split("\\n")[0].replace("\\t", " ")
cuda = found["torch"].version.cuda if "torch" in found else None
print(json.dumps(dict(facts, cuda=cuda, mpi=" ".join(mpi.split()), python=".".join(map(str, sys.version_info[:3])))))
"""


@dataclass(frozen=True)
class RuntimeFacts:
    """What an unpacked runtime says of itself: versions as its own modules give them."""

    folder: str
    python: str
    mpi: str
    numpy: str
    protobuf: str
    lmdb: str
    cv2: str
    caffe: Optional[str] = None
    torch: Optional[str] = None
    hdfs: Optional[str] = None
    h5py: Optional[str] = None
    onnx: Optional[str] = None
    cuda: Optional[str] = None
    """The CUDA that torch is built for; None: it has no GPU code."""


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            digest.update(piece)
    return digest.hexdigest()


# --- Unpacking ---


def unpack(archive: Path, cache: Path) -> Path:
    """The folder that holds the archive's files, `cache`/<sha256>: unpacked there by the first of all callers.

    ConfigError names the member that must not be unpacked (absolute, `..`, a link or device leading outside);
    EnvironmentFault where the disk does not take it.
    """
    if not archive.is_file():
        raise ConfigError(f"{archive}: there is no such runtime archive: build one with `make archive`")
    folder = cache / sha256(archive)
    with local.door(str(cache)):
        cache.mkdir(parents=True, exist_ok=True)
    with local.door(str(cache)), _alone(cache / f"{folder.name}.lock"):
        if not (folder / READY).exists():
            shutil.rmtree(folder, ignore_errors=True)
            _unpack_aside(archive, folder)
            _relocate(folder)
            (folder / READY).touch()
    return folder


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """One process at a time; the kernel drops the lock of one that dies."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unpack_aside(archive: Path, folder: Path) -> None:
    aside = folder.with_suffix(".unpacking")
    shutil.rmtree(aside, ignore_errors=True)  # of one that was killed
    aside.mkdir()
    try:
        with tarfile.open(archive, "r:*") as tar:
            members = read_through(tar)
            check_members(members, str(archive))
            for member in members:
                _place(tar, member, aside)
        _check_links(aside, str(archive))
        aside.chmod(0o755)
        aside.rename(folder)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ConfigError(f"{archive}: cannot be unpacked ({error}): build it again with `make archive`") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def read_through(tar: tarfile.TarFile) -> list[tarfile.TarInfo]:
    """All members, with the file read to its very end: there is the checksum, which tells of broken bytes before."""
    members = tar.getmembers()
    while tar.fileobj and tar.fileobj.read(1 << 20):
        continue
    return members


def check_members(members: Iterable[tarfile.TarInfo], where: str) -> None:
    """ConfigError at the first member that would be placed outside, through a link, or is no file, folder or link."""
    links: set[str] = set()
    for member in members:
        name = posixpath.normpath(member.name)
        reason = _refusal(member, name, links)
        if reason:
            raise ConfigError(f"{where}: member {member.name!r} {reason}: not unpacked")
        if member.issym():
            links.add(name)


def _refusal(member: tarfile.TarInfo, name: str, links: set[str]) -> str:
    """Why this member must not be unpacked, or an empty text."""
    if _leaves(name):
        return "would be placed outside the folder"
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        return "is a device or a pipe"
    if name in links or any(parent in links for parent in _parents(name)):
        return "would be placed through a link"
    if member.issym() and _leaves(posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname))):
        return f"is a link to {member.linkname!r}, which is outside"
    if member.islnk() and (_leaves(member.linkname) or posixpath.normpath(member.linkname) in links):
        return f"is a hard link to {member.linkname!r}"
    return ""


def _leaves(name: str) -> bool:
    return posixpath.isabs(name) or posixpath.normpath(name).split("/")[0] == ".."


def _parents(name: str) -> Iterator[str]:
    while name := posixpath.dirname(name):
        yield name


def _check_links(folder: Path, where: str) -> None:
    """Links that lead outside only by way of other links are seen once all are in place."""
    top = os.path.realpath(folder)
    for path in folder.rglob("*"):
        if path.is_symlink() and os.path.commonpath([top, os.path.realpath(path)]) != top:
            name = path.relative_to(folder)
            raise ConfigError(
                f"{where}: member '{name}' is a link to {str(path.readlink())!r}, which is outside: not unpacked"
            )


def _place(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Owners, set-id bits and times are not taken over."""
    target = folder / member.name
    target.parent.mkdir(parents=True, exist_ok=True)
    kind: Callable[..., None] = next(place for is_kind, place in _PLACERS if is_kind(member))
    kind(tar, member, target, folder)


def _place_folder(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folder: Path) -> None:
    target.mkdir(exist_ok=True)


def _place_file(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folder: Path) -> None:
    source = tar.extractfile(member)
    assert source is not None, member.name
    with source, target.open("wb") as file:
        shutil.copyfileobj(source, file, 1 << 20)
    target.chmod(0o755 if member.mode & 0o100 else 0o644)


def _place_link(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folder: Path) -> None:
    target.symlink_to(member.linkname)


def _place_hard_link(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, folder: Path) -> None:
    os.link(folder / member.linkname, target)


_PLACERS: tuple[tuple[Callable[[tarfile.TarInfo], bool], Callable[..., None]], ...] = (
    (tarfile.TarInfo.isdir, _place_folder),
    (tarfile.TarInfo.isreg, _place_file),
    (tarfile.TarInfo.issym, _place_link),
    (tarfile.TarInfo.islnk, _place_hard_link),
)


def _relocate(folder: Path) -> None:
    """conda-pack's archives hold a program that writes the folder's real path into its files: run once, in place."""
    program = folder / "bin" / "conda-unpack"
    if program.exists():
        done = _run(folder, [str(program)])
        if done.returncode:
            raise EnvironmentFault(f"{program}: failed: {_last_line(done.stderr)}")


# --- Checking ---


def verify(folder: Path, libraries: bool = True, engine: Optional[str] = None) -> RuntimeFacts:
    """Run the runtime's own Python: every module that ranks need imports, every shared library resolves.

    One engine must be there (`engine`, if one is named). `libraries=False` leaves the look at libraries out (it takes
    seconds). EnvironmentFault tells what is broken.
    """
    recipe = RECIPES[engine or "caffe"]
    done = _run(folder, ["-c", _PROBE, *([engine] if engine else [])])
    if done.returncode:
        raise EnvironmentFault(
            f"{folder}: the runtime is broken: {_cause(done)}: "
            f"rebuild it with `make {recipe}` or give another --runtime"
        )
    missing = missing_libraries(folder) if libraries else []
    if missing:
        raise EnvironmentFault(
            f"{folder}: the runtime lacks libraries: {', '.join(missing)}: rebuild it with `make {recipe}`"
        )
    return RuntimeFacts(folder=str(folder), **json.loads(done.stdout.splitlines()[-1]))


def _run(folder: Path, args: list[str]) -> subprocess.CompletedProcess[str]:
    """A program in the runtime's Python; what the caller's environment says of libraries and Pythons stays out."""
    keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "TMPDIR", "LANG")}
    env = {**keep, "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", "GLOG_minloglevel": "2"}
    python = folder.absolute() / "bin" / "python"
    try:
        return subprocess.run(
            [str(python), *args], env=env, capture_output=True, text=True, timeout=300, cwd="/", check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = "is not there" if not python.exists() else f"does not start on this machine ({error})"
        raise EnvironmentFault(
            f"{python} {reason}: rebuild the runtime with `make archive` or give another --runtime"
        ) from error


def _cause(done: subprocess.CompletedProcess[str]) -> str:
    """One line: the loader's, where the C library is too old or of another kind, else the program's last."""
    loader = [line for line in done.stderr.splitlines() if "GLIBC" in line or "error while loading" in line]
    if loader:
        return f"it needs another C library or machine than this one: {loader[0].strip()}"
    return _last_line(done.stderr) or f"its Python ended with code {done.returncode}"


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]


# --- Finding ---


def locate(explicit: Optional[str], engine: str = "auto", gpu: bool = False) -> Path:
    """The runtime's folder for a run of `engine` on this machine.

    `explicit` (a folder, or an archive that is then unpacked), else $CAFFE_ON_GRID_RUNTIME, whatever engine they have;
    else what lies in the checkout's .cache or in the user's cache for this engine. "auto": one with Caffe is looked for
    first, for a `gpu` one with torch. EnvironmentFault where there is none.
    """
    named = explicit or os.environ.get("CAFFE_ON_GRID_RUNTIME")
    if named:
        return _named(Path(named).expanduser())
    order = (("torch", "caffe") if gpu else ("caffe", "torch")) if engine == "auto" else (engine,)
    names = [name for each in order for name in RUNTIMES[each]]
    places = (cache / name for name in names for cache in (checkout() / ".cache", user_cache()))
    for folder in places:
        if _has_python(folder):
            return folder
    raise EnvironmentFault(
        f"there is no runtime for {' or '.join(order)} here: build one with `make {RECIPES[order[0]]}`, "
        "or name yours with --runtime PATH"
    )


def checkout() -> Path:
    """The folder that holds the package: the checkout, unless the package is installed."""
    return Path(caffe_on_grid.__file__).parent.parent


def user_cache() -> Path:
    """Where this user's unpacked archives are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "caffe-on-grid"


def _named(path: Path) -> Path:
    if path.is_file():
        path = unpack(path, user_cache() / "runtimes")
    if not _has_python(path):
        raise EnvironmentFault(
            f"{path}: no runtime is there (no bin/python): "
            "build one with `make archive`, or name yours with --runtime PATH"
        )
    return path.absolute()


def _has_python(folder: Path) -> bool:
    return os.access(folder / "bin" / "python", os.X_OK)
