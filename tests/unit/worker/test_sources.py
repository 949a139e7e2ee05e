"""What a rank reads before it starts: its sources, and the job's solver."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import pytest

from caffe_on_grid.proto import graph, schema, text
from caffe_on_grid.spec.job import DataSpec, JobSpec
from caffe_on_grid.spec.rank import Device, RankSpec
from caffe_on_grid.storage import bulk
from caffe_on_grid.storage.registry import connect
from caffe_on_grid.worker import assemble


def spec_of(job: JobSpec, folder: Path, task: str = "train") -> RankSpec:
    return RankSpec(
        job, task, "r", 0, 1, 0, 0, "h", Device("cpu"), str(folder), str(folder / "rank-0"), "", "", str(folder), 1
    )


@pytest.mark.parametrize(
    ("line", "prefix"),
    [("", "my.solver"), ('"net"', "net"), ('"snapshots/"', "snapshots/my.solver"), ('"a b/c"', "a b/c")],
)
def test_snapshots_are_named_as_caffe_names_them(tmp_path, line, prefix):
    (tmp_path / "my.solver.prototxt").write_text(f"max_iter: 1 {line and 'snapshot_prefix: ' + line}")
    assert assemble.read_solver(spec_of(JobSpec(("train",), "my.solver.prototxt"), tmp_path)).snapshot_prefix == prefix


@pytest.mark.parametrize(("task", "sizes"), [("train", [2500, 1500, 3500]), ("test", [3500])])
def test_every_part_of_every_source_that_is_used_is_heard_of(tmp_path, monkeypatch, task, sizes):
    """Copying a large source to a node takes longer than any step: each part that comes is a sign of life."""
    monkeypatch.setattr(bulk, "PART_BYTES", 1000)
    monkeypatch.delenv("LOCAL_DIRS", raising=False)
    base = f"memory://{uuid.uuid4().hex}"
    for name, size in (("input", 2500), ("unused", 9000), ("first", 1500), ("second", 3500)):
        connect(base).write(os.urandom(size), f"{base}/{name}/data.mdb")
    job = JobSpec((task,), "s", data=DataSpec(input=f"{base}/input"), test_net=1)
    spec = spec_of(job, tmp_path, task)
    heard: list[tuple[int, int]] = []
    nets = graph.SolverNets(net(f"{base}/unused"), (net(f"{base}/first"), net(f"{base}/second")))
    assemble.fetch_sources(spec, nets, lambda done, total: heard.append((done, total)))
    parts = [size for size in sizes for _ in range(0, size, 1000)]
    assert [total for _, total in heard] == parts
    layer = graph.data_layers(nets.tests[1])[0]
    assert (Path(assemble.source_path(spec, layer, "TEST")) / "data.mdb").stat().st_size == 3500
    assert len(heard) == len(parts), "what is there is not copied again"


def net(source: str):
    data = f'data_param {{ source: "{source}" batch_size: 2 backend: LMDB }}'
    return text.parse(schema.NetParameter, f'layer {{ name: "d" type: "Data" top: "data" {data} }}', "net")
