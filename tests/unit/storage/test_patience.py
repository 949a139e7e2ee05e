"""A store that is away for a while when a snapshot or the model is due: a training of days does not end by that."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caffe_on_grid.errors import ConfigError, EnvironmentFault, SecurityFault
from caffe_on_grid.storage import paths, patience, registry, snapshots, solverstate
from caffe_on_grid.storage.fsspec_store import FsspecClient
from caffe_on_grid.storage.remote import RemoteStorage, StoreFault
from caffe_on_grid.worker import publish

FIELDS = {"iteration": 5, "world": 1, "seed": 7, "run_id": "r", "batches": 5, "test_passes": 0, "solver_type": "SGD"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    for name, value in (("PATIENCE_S", 30.0), ("PAUSE_S", 0.01), ("MOST_S", 0.05)):
        monkeypatch.setattr(patience, name, value)
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


class Away(FsspecClient):
    """A store that refuses as many writes as it is told to."""

    def __init__(self) -> None:
        super().__init__("local", "")
        self.refuses, self.kind = 0, "SafeModeException"

    def create(self, path: str, content) -> None:
        if self.refuses:
            self.refuses -= 1
            raise StoreFault(self.kind, "so it is")
        super().create(path, content)


@pytest.fixture
def store(monkeypatch) -> Away:
    made = Away()
    monkeypatch.setitem(registry.SCHEMES, "away", lambda: RemoteStorage(lambda uri: made, delays_s=()))
    return made


def published(folder: Path, monkeypatch, capsys) -> tuple[int, str, str]:
    """Exit code and words of the program that publishes a snapshot."""
    model, state = folder / "net_iter_5.caffemodel", folder / "net_iter_5.solverstate"
    model.write_bytes(b"model")
    state.write_bytes(bytes([8, 5]) + solverstate.naming(model.name))
    monkeypatch.setattr("sys.argv", ["publish", f"away://{folder}/s", "net", str(model), str(state)])
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(FIELDS)))
    code = publish.main()
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_snapshot_waits_for_its_store(store, tmp_path, monkeypatch, capsys):
    store.refuses = 5
    assert published(tmp_path, monkeypatch, capsys) == (0, f"away://{tmp_path}/s/net_iter_5.json\n", "")
    found = snapshots.newest(str(tmp_path / "s"))
    assert found is not None
    assert found[1].iteration == 5


def test_it_does_not_wait_for_ever(store, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(patience, "PATIENCE_S", 0.3)
    store.refuses = 10_000
    code, out, err = published(tmp_path, monkeypatch, capsys)
    assert (code, out) == (EnvironmentFault.exit_code, "")
    assert "HDFS is in safe mode" in err
    assert snapshots.newest(str(tmp_path / "s")) is None


def test_it_does_not_wait_for_a_permission(store, tmp_path, monkeypatch, capsys):
    store.refuses, store.kind = 1, "AccessControlException"
    assert published(tmp_path, monkeypatch, capsys)[0] == SecurityFault.exit_code
    assert store.refuses == 0


PUBLISH = """
import sys
from caffe_on_grid.storage import snapshots
from caffe_on_grid.worker import publish

snapshots.digest = lambda path: "takes long for a large file"
sys.exit(publish.main())
"""


def test_a_snapshot_that_is_broken_off_leaves_nothing(tmp_path):
    model, state, folder = tmp_path / "net_iter_5.caffemodel", tmp_path / "net_iter_5.solverstate", tmp_path / "s"
    with model.open("wb") as large:
        large.truncate(8 << 30)  # a hole: it takes no room here, and long to write
    state.write_bytes(bytes([8, 5]))
    process = subprocess.Popen(
        [sys.executable, "-c", PUBLISH, str(folder), "net", str(model), str(state)], stdin=subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(FIELDS).encode())
    process.stdin.close()
    while not (folder.exists() and any(paths.is_temporary(entry.name) for entry in folder.iterdir())):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 128 + signal.SIGTERM
    assert list(folder.iterdir()) == []


def test_what_is_waited_for_is_told_once():
    failures, told = [EnvironmentFault("hdfs://h/x: away")] * 3, []

    def work() -> str:
        if failures:
            raise failures.pop()
        return "done"

    assert patience.patiently(work, told.append) == "done"
    assert told == ["tried again for 0.5 minutes: hdfs://h/x: away"]


def test_what_is_wrong_is_not_tried_again():
    tries = []

    def work() -> None:
        tries.append(1)
        raise ConfigError("no such folder")

    with pytest.raises(ConfigError):
        patience.patiently(work)
    assert tries == [1]
