from __future__ import annotations

import pytest

from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec.job import Cluster
from caffe_on_grid.submit import cluster

HADOOP = {"YARN_CONF_DIR": "/etc/hadoop"}


def placed(environ: dict[str, str] | None = None, cores: int = 4, **asked: object) -> Cluster:
    return cluster.place(Cluster(**asked), {f"cluster.{name}" for name in asked}, environ or {}, cores)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "environ", "master", "executors", "cores", "memory"),
    [
        ({}, {}, "local[1]", 1, None, None),
        ({"executors": 3}, {}, "local[3]", 3, None, None),
        ({}, HADOOP, "yarn", 1, 1, None),
        ({"executors": 8, "executor_cores": 4}, HADOOP, "yarn", 8, 4, None),
        ({"master": "local[4]"}, HADOOP, "local[4]", 1, None, None),
        ({"master": "local[4]", "executors": 3}, {}, "local[4]", 3, None, None),
        ({"master": "local[*]", "executors": 4}, {}, "local[*]", 4, None, None),
        ({"master": "local"}, {}, "local", 1, None, None),
        ({"master": "local-cluster[2,3,512]"}, {}, "local-cluster[2,3,512]", 2, 3, "512m"),
        ({"master": "local-cluster[2,1,1024]", "executors": 1}, {}, "local-cluster[2,1,1024]", 1, 1, "1024m"),
        ({"master": "spark://a:1,b:2", "executors": 2}, {}, "spark://a:1,b:2", 2, 1, None),
    ],
)
def test_place(
    asked: dict[str, object],
    environ: dict[str, str],
    master: str,
    executors: int,
    cores: int | None,
    memory: str | None,
) -> None:
    found = placed(environ, **asked)
    assert (found.master, found.executors, found.executor_cores, found.executor_memory) == (
        master,
        executors,
        cores,
        memory,
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"master": "local[2]", "executors": 3}, "there are only 2"),
        ({"master": "local[*]", "executors": 5}, "there are only 4"),
        ({"master": "local-cluster[2,1,1024]", "executors": 3}, "there are only 2"),
        ({"master": "local-cluster[2,1,1024]", "executor_cores": 2}, "executors have 1 cores each"),
        ({"master": "local[2]", "deploy_mode": "cluster"}, "only yarn"),
        ({"master": "yarn", "wait": False}, "--no-wait: only with --deploy-mode cluster"),
        ({"master": "mesos://x"}, "use yarn, local"),
        ({"master": "local[two]"}, "use yarn, local"),
        ({"master": "Yarn"}, "use yarn, local"),
    ],
)
def test_refused(asked: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        placed(**asked)


def test_more_ranks_than_cores_are_remarked_on_here_alone() -> None:
    assert cluster.remarks(placed(executors=3), 2, 4) == ["6 ranks on 4 cores: they will share them, 2 to a core"]
    assert cluster.remarks(placed(executors=2), 2, 4) == []
    assert cluster.remarks(placed(HADOOP, executors=30), 8, 4) == []
