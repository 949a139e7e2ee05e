"""What is asked of YARN, and whether it can ever be given: answers as Hadoop 3.4's REST API gives them, cut down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from caffe_on_grid.submit import capacity
from caffe_on_grid.submit.capacity import Request

WANTED = Request(2, 1536, 1, 0, "default", "gpu", None, 896, "ada")


def resource(memory: int, gpus: int | None) -> dict[str, Any]:
    rows: list[dict[str, Any]] = [{"name": "memory-mb", "value": memory, "maximumAllocation": 4096}]
    if gpus is not None:
        rows.append({"name": "yarn.io/gpu", "value": gpus, "maximumAllocation": 2})
    return {"memory": memory, "resourceInformations": {"resourceInformation": rows}}


def node(
    name: str, label: str = "", memory: int = 4096, gpus: int | None = 0, state: str = "RUNNING"
) -> dict[str, Any]:
    row = {
        "id": name,
        "state": state,
        "usedMemoryMB": 1000,
        "availMemoryMB": memory - 1000,
        "availableVirtualCores": 4,
        "totalResource": resource(memory, gpus),
    }
    return {**row, "nodeLabels": [label]} if label else row


def queue(name: str, **more: Any) -> dict[str, Any]:
    limits = {"queueCapacitiesByPartition": [{"configuredMaxResource": resource(0, 0)}]}
    return {"queueName": name, "queuePath": f"root.a.{name}", "state": "RUNNING", "capacities": limits, **more}


def scheduler(*leaves: dict[str, Any]) -> dict[str, Any]:
    inner = {"queueName": "a", "queues": {"queue": list(leaves)}}
    return {"scheduler": {"schedulerInfo": {"queueName": "root", "queues": {"queue": [inner]}}}}


NODES = capacity.nodes({"nodes": {"node": [node("a:1"), node("b:1", "gpu", gpus=2), node("c:1", "gpu", state="LOST")]}})
QUEUES = scheduler(queue("default", nodeLabels=["*"]), queue("plain"), queue("shut", nodeLabels=["*"], state="STOPPED"))


def problem(wanted: Request, labels: list[str] | None = ["gpu", "spare"]) -> str | None:  # noqa: B006
    return capacity.problem(wanted, QUEUES, labels, NODES, {})


@pytest.mark.parametrize("wanted", [WANTED, replace(WANTED, queue="root.a.default"), replace(WANTED, label=None)])
def test_what_fits(wanted: Request) -> None:
    assert problem(wanted) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"queue": "b"}, "--queue b: YARN has no such queue to submit to; it has default, plain, shut"),
        ({"queue": "a"}, "--queue a: YARN has no such queue"),
        ({"queue": "shut"}, "--queue shut: YARN says that it is STOPPED"),
        ({"queue": "plain"}, "--node-label gpu: queue plain may not use this label; it may use none"),
        ({"label": "nope"}, "--node-label nope: YARN knows no such node label; it knows gpu, spare"),
        ({"label": "spare"}, "--node-label spare: no running node carries this label; nodes carry gpu"),
        ({"am_label": "nope"}, "--am-node-label nope: "),
        ({"memory_mib": 4097}, "4097 MiB, 1 vcore is larger than YARN's largest, 4096 MiB; lower --executor-memory"),
        ({"gpus": 3}, "3 GPUs is larger than YARN's largest, 2 GPUs; lower -devices"),
        ({"am_memory_mib": 5000}, "application master's container of 5000 MiB is larger"),
        ({"executors": 3}, "the 1 nodes labelled gpu have room for 2 even when empty (largest 4096 MiB)"),
        ({"gpus": 2}, "have room for 1 even when empty (largest 4096 MiB and 2 GPUs)"),
        ({"label": None, "gpus": 1}, "the 1 nodes without a label have room for 0"),
    ],
)
def test_what_can_never_be(changed: dict[str, Any], words: str) -> None:
    found = problem(replace(WANTED, **changed))
    assert found and words in found and "\n" not in found


def test_a_yarn_without_labels() -> None:
    found = problem(WANTED, None)
    assert found and "this YARN has no node labels" in found


def test_a_scheduler_that_tells_nothing_is_taken_at_the_gateways_word() -> None:
    found = capacity.problem(WANTED, {}, ["gpu"], NODES, {"memory-mb": 1024})
    assert found and "larger than YARN's largest, 1024 MiB" in found
    assert capacity.problem(WANTED, {}, ["gpu"], NODES, {}) is None


def test_what_is_said_while_it_waits() -> None:
    said = capacity.standing(WANTED, NODES, "in the\nqueue")
    assert said == (
        "YARN says: queue default, label gpu: 1 nodes, 3096 MiB and 4 vcores free, room for 2 of 1536 MiB, 1 vcore; "
        "in the queue"
    )


@pytest.mark.parametrize("gpus", [0, None])
def test_whether_yarn_knows_gpus(gpus: int | None) -> None:
    assert capacity.knows_gpus({"nodes": {"node": [node("a:1", gpus=gpus)]}}) is (gpus is not None)


@pytest.mark.parametrize(
    ("settings", "memory", "am"),
    [
        ({}, 1024 + 384, 512 + 384),
        ({"spark.executor.memory": "8g"}, 8192 + 819, 896),
        ({"spark.executor.memory": "512m", "spark.executor.memoryOverhead": "1024m"}, 1536, 896),
        ({"spark.executor.memory": "512m", "spark.executor.pyspark.memory": "1g"}, 512 + 384 + 1024, 896),
        ({"spark.yarn.am.memory": "1g", "spark.yarn.am.memoryOverhead": "500"}, 1408, 1524),
    ],
)
def test_what_spark_asks_for(settings: dict[str, str], memory: int, am: int) -> None:
    found = capacity.request(2, False, settings, "ada")
    assert (found.memory_mib, found.am_memory_mib) == (memory, am)


def test_the_driver_is_the_master_in_cluster_mode() -> None:
    assert capacity.request(1, True, {"spark.driver.memory": "2g"}, "ada").am_memory_mib == 2048 + 384
