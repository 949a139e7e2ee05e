"""Archives: what is refused, that unpacking happens once, where a runtime is looked for."""

from __future__ import annotations

import hashlib
import io
import os
import resource
import stat
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Optional

import pytest

from caffe_on_grid.errors import ConfigError, EnvironmentFault, UsageError
from caffe_on_grid.submit import archive, pack, uploads


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    return info


def packed(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for info, content in members:
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def plain(path: Path, script: str = "#!/bin/sh\n") -> Path:
    """An archive with bin/python (a script), a link to it, a hard link and a set-id file."""
    return packed(
        path,
        (member("./bin", tarfile.DIRTYPE), b""),
        (member("./bin/python3", mode=0o755), script.encode()),
        (member("./bin/python", tarfile.SYMTYPE, "python3"), b""),
        (member("lib/a", mode=0o4644), b"a"),
        (member("lib/b", tarfile.LNKTYPE, "lib/a"), b""),
        (member("lib64", tarfile.SYMTYPE, "lib"), b""),
    )


REFUSED = {
    "absolute": [member("/etc/evil")],
    "dots": [member("a/../../evil")],
    "only dots": [member("..")],
    "link to an absolute path": [member("evil", tarfile.SYMTYPE, "/etc/passwd")],
    "link up and out": [member("a/evil", tarfile.SYMTYPE, "../../x")],
    "through a link": [member("a", tarfile.SYMTYPE, "b"), member("a/evil")],
    "over a link": [member("evil", tarfile.SYMTYPE, "b"), member("evil")],
    "out by way of a link": [member("b/top", tarfile.SYMTYPE, ".."), member("evil", tarfile.SYMTYPE, "b/top/../x")],
    "hard link out": [member("evil", tarfile.LNKTYPE, "../x")],
    "hard link to an absolute path": [member("evil", tarfile.LNKTYPE, "/etc/passwd")],
    "hard link to a link": [member("l", tarfile.SYMTYPE, "x"), member("evil", tarfile.LNKTYPE, "l")],
    "device": [member("evil", tarfile.CHRTYPE)],
    "pipe": [member("evil", tarfile.FIFOTYPE)],
}


@pytest.mark.parametrize("members", REFUSED.values(), ids=REFUSED)
def test_refused_whole_and_named(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    bad = packed(tmp_path / "bad.tgz", (member("good"), b"good"), *((m, b"") for m in members))
    with pytest.raises(ConfigError, match=r"bad\.tgz.*(evil|'\.\.').*not unpacked"):
        archive.unpack(bad, tmp_path / "cache")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_unpacks_files_links_and_modes(tmp_path: Path) -> None:
    tgz = plain(tmp_path / "a.tgz")
    folder = archive.unpack(tgz, tmp_path / "cache")
    assert folder == tmp_path / "cache" / hashlib.sha256(tgz.read_bytes()).hexdigest()
    assert str((folder / "bin" / "python").readlink()) == "python3"
    assert os.access(folder / "bin" / "python", os.X_OK)
    assert (folder / "lib64" / "b").read_bytes() == b"a"
    assert stat.S_IMODE((folder / "lib" / "a").stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_unpacks_once(tmp_path: Path) -> None:
    tgz = plain(tmp_path / "a.tgz")
    folder = archive.unpack(tgz, tmp_path / "cache")
    (folder / "mark").touch()
    assert archive.unpack(tgz, tmp_path / "cache") == folder
    assert (folder / "mark").exists()


def test_an_unfinished_folder_is_made_again(tmp_path: Path) -> None:
    tgz = plain(tmp_path / "a.tgz")
    folder = archive.unpack(tgz, tmp_path / "cache")
    (folder / archive.READY).unlink()
    (folder / "lib" / "a").unlink()
    assert (archive.unpack(tgz, tmp_path / "cache") / "lib" / "a").read_bytes() == b"a"


def test_concurrent_callers_share_one_folder(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    script = f'#!/bin/sh\necho run >> "{runs}"\n'
    tgz = packed(
        tmp_path / "conda.tgz",
        (member("bin/python", mode=0o755), script.encode()),
        (member("bin/conda-unpack", mode=0o755), b""),
    )
    with get_context("spawn").Pool(3) as processes, ThreadPoolExecutor(3) as threads:
        there = [threads.submit(archive.unpack, tgz, tmp_path / "cache") for _ in range(3)]
        folders = set(processes.starmap(archive.unpack, [(tgz, tmp_path / "cache")] * 3)) | {f.result() for f in there}
    assert len(folders) == 1
    assert runs.read_text() == "run\n"


def test_conda_unpack_runs_in_place_with_the_archive_s_python(tmp_path: Path) -> None:
    tgz = packed(
        tmp_path / "conda.tgz",
        (member("bin/python", mode=0o755), f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'.encode()),
        (
            member("bin/conda-unpack", mode=0o755),
            b"import pathlib\np = pathlib.Path(__file__).parents[1]\n(p / 'prefix').write_text(str(p))\n",
        ),
    )
    folder = archive.unpack(tgz, tmp_path / "cache")
    assert (folder / "prefix").read_text() == str(folder)


def test_a_failing_conda_unpack_leaves_nothing_ready(tmp_path: Path) -> None:
    tgz = packed(
        tmp_path / "conda.tgz",
        (member("bin/python", mode=0o755), b"#!/bin/sh\necho no such prefix >&2; exit 3\n"),
        (member("bin/conda-unpack", mode=0o755), b""),
    )
    for _ in range(2):
        with pytest.raises(EnvironmentFault, match="conda-unpack: failed: no such prefix"):
            archive.unpack(tgz, tmp_path / "cache")


@pytest.mark.parametrize("content", [b"no archive", b"", b"\x1f\x8b\x08\x00cut"])
def test_not_an_archive(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tgz").write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.tgz: cannot be unpacked"):
        archive.unpack(tmp_path / "x.tgz", tmp_path / "cache")


def test_a_cut_archive(tmp_path: Path) -> None:
    whole = packed(tmp_path / "a.tgz", (member("a"), os.urandom(100_000))).read_bytes()
    (tmp_path / "x.tgz").write_bytes(whole[:50_000])
    with pytest.raises(ConfigError, match=r"x\.tgz: cannot be unpacked"):
        archive.unpack(tmp_path / "x.tgz", tmp_path / "cache")


@pytest.mark.parametrize("bad", [bytes(100), b"\xff" * 100], ids=["what can be inflated", "what cannot"])
def test_an_archive_that_is_broken_in_the_middle(tmp_path: Path, bad: bytes) -> None:
    broken = bytearray(packed(tmp_path / "a.tgz", (member("a"), os.urandom(200_000).hex().encode())).read_bytes())
    broken[100_000:100_100] = bad
    (tmp_path / "x.tgz").write_bytes(broken)
    with pytest.raises(ConfigError, match=r"x\.tgz: cannot be unpacked \("):
        archive.unpack(tmp_path / "x.tgz", tmp_path / "cache")
    with pytest.raises(ConfigError, match=r"x\.tgz: not a runtime archive \("):
        uploads.check_archive(tmp_path / "x.tgz")
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_a_disk_that_is_too_small_is_no_fault_of_the_archive(tmp_path: Path) -> None:
    whole = packed(tmp_path / "a.tgz", (member("a"), bytes(1 << 20)))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 19, before[1]))
    try:
        with pytest.raises(EnvironmentFault, match=r"cache: the file grows past what the file system"):
            archive.unpack(whole, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_what_one_that_was_killed_has_left_goes(tmp_path: Path) -> None:
    tgz = plain(tmp_path / "a.tgz")
    half = (tmp_path / "cache" / hashlib.sha256(tgz.read_bytes()).hexdigest()).with_suffix(".unpacking")
    half.mkdir(parents=True)
    (half / "lib").touch()
    assert (archive.unpack(tgz, tmp_path / "cache") / "lib" / "a").read_bytes() == b"a"
    assert not half.exists()


def test_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.tgz: there is no such runtime archive"):
        archive.unpack(tmp_path / "x.tgz", tmp_path / "cache")


# --- verify ---


def folder_with(tmp_path: Path, script: str) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(script)
    (tmp_path / "bin" / "python").chmod(0o755)
    return tmp_path


BROKEN = {
    "glibc": (
        '#!/bin/sh\necho "python: /lib/libc.so.6: version \\`GLIBC_2.99\' not found" >&2; exit 1\n',
        "GLIBC_2.99",
    ),
    "library": (
        "#!/bin/sh\necho 'python: error while loading shared libraries: libx.so.1: gone' >&2; exit 127\n",
        "libx.so.1",
    ),
    "machine": ("\x7fELF of another machine", "does not start on this machine"),
    "module": (f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', "caffe: No module named 'caffe'"),
    "silent": ("#!/bin/sh\nexit 9\n", "ended with code 9"),
}


@pytest.mark.parametrize(("script", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_runtime_is_one_line(tmp_path: Path, script: str, message: str) -> None:
    with pytest.raises(EnvironmentFault) as caught:
        archive.verify(folder_with(tmp_path, script))
    assert message in str(caught.value)
    assert "--runtime" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("engine", [None, "torch"])
def test_a_folder_of_an_engine_s_name_is_not_the_engine(tmp_path: Path, engine: Optional[str]) -> None:
    """Python takes a folder without code for a package."""
    (tmp_path / "more" / "torch").mkdir(parents=True)
    script = f'#!/bin/sh\nPYTHONPATH="{tmp_path}/more" exec "{sys.executable}" "$@"\n'
    missing = engine or "caffe"
    with pytest.raises(EnvironmentFault, match=f"the runtime is broken: {missing}: No module named '{missing}'"):
        archive.verify(folder_with(tmp_path, script), engine=engine)


def test_no_python(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="bin/python is not there"):
        archive.verify(tmp_path)


# --- locate ---


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No runtime anywhere: neither in the environment, nor in the checkout, nor in the user's cache."""
    monkeypatch.delenv("CAFFE_ON_GRID_RUNTIME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(archive, "checkout", lambda: tmp_path / "checkout")
    return tmp_path


def test_locate_nothing(nowhere: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"make archive.*--runtime PATH"):
        archive.locate(None)


def test_locate_order(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [
        nowhere / "cache" / "caffe-on-grid" / "runtime",
        nowhere / "checkout" / ".cache" / "runtime",
        nowhere / "environment",
        nowhere / "explicit",
    ]
    for place in places:
        place.mkdir(parents=True)
        folder_with(place, "#!/bin/sh\n")
    assert archive.locate(str(places[3])) == places[3]
    assert archive.locate(None) == places[1]
    monkeypatch.setenv("CAFFE_ON_GRID_RUNTIME", str(places[2]))
    assert archive.locate(None) == places[2]
    assert archive.locate(str(places[3])) == places[3]
    monkeypatch.delenv("CAFFE_ON_GRID_RUNTIME")
    (places[1] / "bin" / "python").unlink()
    assert archive.locate(None) == places[0]


def test_locate_by_engine(nowhere: Path) -> None:
    """One with the engine asked for; "auto" takes Caffe's first, for a GPU torch's; an assembled one goes first."""
    with pytest.raises(EnvironmentFault, match="make archive-torch"):
        archive.locate(None, "torch")
    made = {}
    for name in ("venv-torch", "runtime"):
        made[name] = nowhere / "checkout" / ".cache" / name
        made[name].mkdir(parents=True)
        folder_with(made[name], "#!/bin/sh\n")
    assert archive.locate(None) == archive.locate(None, "caffe") == made["runtime"]
    assert archive.locate(None, "torch") == archive.locate(None, gpu=True) == made["venv-torch"]
    own = nowhere / "cache" / "caffe-on-grid" / "runtime-torch"
    own.mkdir(parents=True)
    folder_with(own, "#!/bin/sh\n")
    assert archive.locate(None, "torch") == own
    (made["runtime"] / "bin" / "python").unlink()
    assert archive.locate(None) == own


def test_locate_unpacks_an_archive(nowhere: Path) -> None:
    tgz = plain(nowhere / "a.tgz")
    folder = archive.locate(str(tgz))
    assert folder == nowhere / "cache" / "caffe-on-grid" / "runtimes" / archive.sha256(tgz)


@pytest.mark.parametrize("name", ["gone", "empty"])
def test_locate_refuses_what_is_no_runtime(nowhere: Path, name: str) -> None:
    (nowhere / "empty").mkdir()
    with pytest.raises(EnvironmentFault, match=rf"{name}: no runtime is there"):
        archive.locate(str(nowhere / name))


# --- pack ---


def test_pack_knows_its_flavours(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--flavour thick: there is slim and full"):
        pack.pack(tmp_path / "x.tgz", "thick")
    with pytest.raises(UsageError, match="--flavour slim: there is gpu and cpu"):
        pack.pack(tmp_path / "x.tgz", "slim", "torch")
    with pytest.raises(UsageError, match="--engine torhc: there is caffe and torch"):
        pack.pack(tmp_path / "x.tgz", None, "torhc")


def test_pack_from_an_installed_package_says_how(nowhere: Path) -> None:
    with pytest.raises(EnvironmentFault, match="run `make archive` in"):
        pack.pack(nowhere / "x.tgz")
    with pytest.raises(EnvironmentFault, match="run `make archive-torch` in"):
        pack.pack(nowhere / "x.tgz", None, "torch")


def test_pack_tells_of_a_failed_build(nowhere: Path) -> None:
    recipe = nowhere / "checkout" / "packaging" / "runtime" / "build.sh"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("#!/bin/sh\nexit 5\n")
    recipe.chmod(0o755)
    with pytest.raises(EnvironmentFault, match="ended with code 5"):
        pack.pack(nowhere / "x.tgz")
