"""Training from an LMDB that is larger than the memory that a rank and its feeders may take."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Optional

import lmdb
import nets
import numpy as np
import pytest
from ranks import Ranks

from caffe_on_grid.proto import schema
from caffe_on_grid.spec.job import JobSpec, Output
from caffe_on_grid.spec.report import Finished

pytestmark = [pytest.mark.runtime, pytest.mark.timeout(900)]

MARK = "LARGE_DATA_TEST_MARK"
SHAPE = (3, 256, 256)
BATCH = 16
MIB = 1 << 20
CGROUPS = Path("/sys/fs/cgroup/memory")

NET = f"""
layer {{ name: "data" type: "Data" top: "data" top: "label"
  transform_param {{ scale: 0.00390625 mirror: true }}
  data_param {{ source: "SOURCE" batch_size: {BATCH} backend: LMDB }} }}
layer {{ name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param {{ pool: AVE global_pooling: true }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "pool" top: "ip"
  inner_product_param {{ num_output: 4 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


def write(path: Path, mib: int) -> int:
    """An LMDB of so many MiB of raw images; how many records that makes."""
    records = mib * MIB // int(np.prod(SHAPE))
    with lmdb.open(str(path), map_size=2 * mib * MIB, sync=False) as env:
        for first in range(0, records, 256):
            with env.begin(write=True) as txn:
                for i in range(first, min(first + 256, records)):
                    datum = schema.Datum(
                        channels=SHAPE[0], height=SHAPE[1], width=SHAPE[2], data=image(i % 4), label=i % 4
                    )
                    txn.put(b"%08d" % i, datum.SerializeToString(), append=True)
    return records


def image(label: int) -> bytes:
    return bytes([40 * label + 20]) * int(np.prod(SHAPE))


class Watched(Ranks):
    """Ranks whose memory is looked at while they run, in a control group if one is given."""

    group: Optional[Path] = None
    peak = 0

    def _command(self, world: int) -> list[str]:
        words = super()._command(world)
        if self.group is None:
            return words
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.group / "cgroup.procs"), *words]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note the most that all processes with the mark held together, in bytes of RssAnon."""
        self.env = {**self.env, MARK: uuid.uuid4().hex}
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(0.02):
                self.peak = max(self.peak, anonymous(f"{MARK}={self.env[MARK]}".encode()))

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def anonymous(mark: bytes) -> int:
    """Bytes of anonymous memory of the processes that have `mark` in their environment."""
    found = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (entry / "environ").read_bytes().split(b"\0"):
                lines = (entry / "status").read_text().splitlines()
                found += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))
        except OSError:
            continue  # it has ended meanwhile
    return found


@contextmanager
def limited(mib: int) -> Iterator[Optional[Path]]:
    """A memory control group (version 1) with this limit, files' pages included; None where none can be made."""
    group = CGROUPS / f"caffe-on-grid-test-{uuid.uuid4().hex}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(mib * MIB))
    except OSError:
        yield None
        return
    try:
        yield group
    finally:
        group.rmdir()


def train(ranks: Watched, folder: Path, mib: int) -> None:
    """Every record once; the ranks' memory is watched."""
    records = write(folder / "data", mib)
    steps = -(-records // BATCH)
    job_dir = nets.write_job(
        folder / "job", NET.replace("SOURCE", str(folder / "data")), nets.solver(iterations=steps, test=False)
    )
    model = folder / "net.caffemodel"
    spec = JobSpec(("train",), "solver.prototxt", output=Output(str(model)))
    with ranks.watch():
        outcome = ranks.run(spec, job_dir, timeout=600)
    assert outcome.code == 0, outcome
    assert outcome.of(Finished)[0].samples == steps * BATCH >= records
    assert model.is_file()


@pytest.fixture
def ranks(runtime: Path, runtime_env: dict[str, str], tmp_path: Path) -> Watched:
    return Watched(runtime, runtime_env, tmp_path)


def test_anonymous_memory_is_less_than_the_data(ranks: Watched, tmp_path: Path) -> None:
    train(ranks, tmp_path, 300)
    assert 20 * MIB < ranks.peak < 150 * MIB


@pytest.mark.slow
def test_two_gibibytes_in_512_mebibytes(ranks: Watched, tmp_path: Path) -> None:
    with limited(512) as ranks.group:
        train(ranks, tmp_path, 2048)
        if ranks.group:
            assert 20 * MIB < int((ranks.group / "memory.max_usage_in_bytes").read_text()) <= 512 * MIB
    assert 20 * MIB < ranks.peak < 512 * MIB
