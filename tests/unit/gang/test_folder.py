from __future__ import annotations

import socket
import stat

import pytest

from caffe_on_grid.gang.folder import SOCKET, GangFolder
from caffe_on_grid.spec import codec, job
from caffe_on_grid.spec.rank import Device, RankSpec
from caffe_on_grid.spec.report import Progress


@pytest.fixture
def folder(tmp_path):
    deep = tmp_path / ("x" * 120)  # longer than a Unix address may be
    deep.mkdir()
    return GangFolder(deep)


def spec(folder, rank=4):
    return RankSpec(
        job.JobSpec(("train",), "solver.prototxt"),
        "train",
        "run",
        rank,
        5,
        0,
        1,
        "node",
        Device("cpu"),
        "/job",
        str(folder.scratch(rank)),
        f"../{SOCKET}",
        f"../{folder.progress_file(rank).name}",
        "/run",
        7,
    )


def test_the_folder_is_private_and_goes_away(folder):
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    folder.remove()
    folder.remove()
    assert not folder.path.exists()


def test_a_rank_finds_what_it_is_told(folder):
    folder.prepare([spec(folder)])
    assert codec.loads(RankSpec, (folder.path / "rank-4.json").read_text()) == spec(folder)
    assert list(folder.scratch(4).iterdir()) == []
    assert folder.progress(4) == Progress(0, "starting", 0.0)
    data = bytearray(Progress.SIZE)
    Progress(9, "exchange", 1.5).pack_into(data)
    folder.progress_file(4).write_bytes(data)
    assert folder.progress(4) == Progress(9, "exchange", 1.5)
    assert folder.exit_of(4) is None


def test_ranks_reach_the_socket_from_their_folder(folder, monkeypatch):
    folder.prepare([spec(folder)])
    with folder.listen() as listener, socket.socket(socket.AF_UNIX) as rank:
        monkeypatch.chdir(folder.scratch(4))
        rank.connect(f"../{SOCKET}")
        connection, _ = listener.accept()
        with connection:
            rank.sendall(b"x")
            assert connection.recv(1) == b"x"
    assert list(folder.scratch(4).iterdir()) == []
