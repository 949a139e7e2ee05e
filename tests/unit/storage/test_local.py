"""Local files: what each method promises, errors at the door, and publishing that a kill cannot halve."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError, EnvironmentFault, GridError, SecurityFault
from caffe_on_grid.storage import paths
from caffe_on_grid.storage.local import FAULTS, LocalStorage, door

STORE = LocalStorage()


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_files_come_and_go(tmp_path):
    folder = f"file:{tmp_path}/a b"
    STORE.write(b"one", paths.join(folder, "x"))
    STORE.append(b"two", paths.join(folder, "x"))
    STORE.append(b"new", paths.join(folder, "sub", "y"))
    STORE.make_folder(paths.join(folder, "z", "deep"))
    assert STORE.names(folder) == ["sub", "x", "z"]
    assert STORE.read(paths.join(folder, "x")) == b"onetwo"
    assert STORE.size(paths.join(folder, "x")) == 6
    assert STORE.exists(folder)
    assert STORE.is_folder(folder)
    assert not STORE.is_folder(paths.join(folder, "x"))
    STORE.fetch(paths.join(folder, "x"), tmp_path / "copy")
    STORE.publish(tmp_path / "copy", paths.join(folder, "w"))
    assert STORE.read(paths.join(folder, "w")) == b"onetwo"
    STORE.remove(paths.join(folder, "w"))
    STORE.remove(folder)
    assert not STORE.exists(folder)


def test_publishing_replaces_what_was_there(tmp_path):
    STORE.write(b"old" * 1000, str(tmp_path / "x"))
    STORE.write(b"new", str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"new"
    assert names(tmp_path) == ["x"]


def test_a_file_fetched_onto_itself_stays(tmp_path):
    (tmp_path / "x").write_bytes(b"content")
    STORE.fetch(str(tmp_path / "x"), tmp_path / "x")
    assert (tmp_path / "x").read_bytes() == b"content"


def test_removing_a_link_keeps_what_it_leads_to(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    STORE.remove(str(tmp_path / "link"))
    assert names(tmp_path) == ["real"]


def test_a_failed_publish_leaves_nothing(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        STORE.publish(tmp_path / "absent", str(tmp_path / "out" / "x"))
    assert names(tmp_path / "out") == []


def test_check_writable_leaves_no_trace(tmp_path):
    STORE.check_writable(str(tmp_path / "not" / "yet"))
    assert names(tmp_path) == []


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_error_number_is_translated(number):
    with pytest.raises(GridError) as caught, door("file:/some/where"):
        raise OSError(number, os.strerror(number), "/some/where")
    cls, text = FAULTS.get(number, (EnvironmentFault, os.strerror(number)))
    assert type(caught.value) is cls
    assert str(caught.value).startswith(f"file:/some/where: {text}")
    assert "\n" not in str(caught.value)


def not_found(tmp_path):
    STORE.read(str(tmp_path / "absent"))


def folder_for_file(tmp_path):
    STORE.size(str(tmp_path))


def folder_read(tmp_path):
    STORE.read(str(tmp_path))


def published_onto_folder(tmp_path):
    STORE.write(b"x", str(tmp_path))


def file_in_the_way(tmp_path):
    (tmp_path / "file").touch()
    STORE.write(b"x", str(tmp_path / "file" / "x"))


def file_for_folder(tmp_path):
    (tmp_path / "file").touch()
    STORE.make_folder(str(tmp_path / "file"))


def names_of_file(tmp_path):
    (tmp_path / "file").touch()
    STORE.names(str(tmp_path / "file"))


def too_long(tmp_path):
    STORE.write(b"x", str(tmp_path / ("x" * 300)))


def circle(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "a")
    STORE.read(str(tmp_path / "a"))


def removed_twice(tmp_path):
    STORE.remove(str(tmp_path / "absent"))


def no_space(tmp_path):
    STORE.append(b"x", "/dev/full")


def other_scheme(tmp_path):
    STORE.read("hdfs:///x")


REAL = [
    (not_found, ConfigError, "no such file or folder"),
    (folder_for_file, ConfigError, "is a folder where a file is wanted"),
    (folder_read, ConfigError, "is a folder where a file is wanted"),
    (published_onto_folder, ConfigError, "is a folder where a file is wanted"),
    (file_in_the_way, ConfigError, "a file"),
    (file_for_folder, ConfigError, "a file stands where a folder is wanted"),
    (names_of_file, ConfigError, "not a folder"),
    (too_long, ConfigError, "too long"),
    (circle, ConfigError, "circle"),
    (removed_twice, ConfigError, "no such file or folder"),
    (no_space, EnvironmentFault, "no space left"),
    (other_scheme, ConfigError, "not a local path"),
]


@pytest.mark.parametrize(("act", "cls", "text"), REAL, ids=[row[0].__name__ for row in REAL])
def test_real_errors(tmp_path, act, cls, text):
    with pytest.raises(cls, match=text) as caught:
        act(tmp_path)
    assert type(caught.value) is cls


def test_a_folder_of_someone_else_is_denied(tmp_path):
    """Root may write anywhere, so a child gives root up first."""
    tmp_path.chmod(0o500)
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            STORE.check_writable(str(tmp_path))
        except SecurityFault as error:
            os._exit(5 if "permission denied" in str(error) else 1)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 5


PUBLISH_FOREVER = """
import sys
from pathlib import Path
from caffe_on_grid.storage.local import LocalStorage
source, target = sys.argv[1:]
print("ready", flush=True)
while True:
    LocalStorage().publish(Path(source), target)
"""


def publishing(root, source, target):
    """A process that publishes again and again, and has begun."""
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISH_FOREVER, str(source), str(target)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert process.stdout.readline() == b"ready\n"
    return process


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_kill_in_the_midst_of_publishing_leaves_old_or_new_never_half(tmp_path, root):
    source, target = tmp_path / "source", tmp_path / "out" / "x"
    source.write_bytes(os.urandom(8 << 20))
    whole = hashlib.sha256(source.read_bytes()).hexdigest()
    for round_ in range(12):
        process = publishing(root, source, target)
        time.sleep(0.002 * (round_ + 1))
        kill(process)
        found = names(target.parent) if target.parent.exists() else []
        left = [name for name in found if name != "x"]
        assert all(paths.is_temporary(name) for name in left), found
        assert not target.exists() or hashlib.sha256(target.read_bytes()).hexdigest() == whole
        for name in left:
            (Path(target.parent) / name).unlink()


def test_kill_in_the_midst_of_a_copy_leaves_the_old(tmp_path, root):
    """The source is a pipe, so that the copy waits for the rest."""
    source, target = tmp_path / "source", tmp_path / "out" / "x"
    STORE.write(b"old", str(target))
    os.mkfifo(source)
    process = publishing(root, source, target)
    with source.open("wb", buffering=0) as pipe:
        assert pipe.write(bytes(3 << 20)) == 3 << 20
        kill(process)
    (half,) = (entry for entry in target.parent.iterdir() if entry != target)
    assert paths.is_temporary(half.name)
    assert 0 < half.stat().st_size <= 3 << 20
    assert target.read_bytes() == b"old"
