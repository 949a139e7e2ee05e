"""The grid itself, by a barrier stage of two tasks: labels, GPUs and the memory check are real in both deploy modes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
LABELLED = ("--num-executors", "2", "--conf", "spark.yarn.executor.nodeLabelExpression=gpu")
GPUS = (
    *("--conf", "spark.executor.resource.gpu.amount=1", "--conf", "spark.task.resource.gpu.amount=1"),
    *("--conf", "spark.executor.resource.gpu.discoveryScript=./gpus.sh", "--files", str(PROGRAMS / "gpus.sh")),
)


def application_of(done) -> str:
    found = re.search(r"Submitted application (application_\d+_\d+)", done.stderr)
    assert found, done.stderr
    return found[1]


def lines(grid, done, mode: str) -> tuple[dict, list[dict]]:
    """(driver, executors) as the program printed them."""
    application = application_of(done)
    assert done.returncode == 0, done.stderr
    assert grid.wait_ended(application)["finalStatus"] == "SUCCEEDED"
    printed = done.stdout.splitlines() if mode == "client" else grid.stdout(application, " ")
    rows = [line.split(" ", 1) for line in printed if line.startswith(("DRIVER", "EXECUTOR"))]
    driver = next(json.loads(text) for word, text in rows if word == "DRIVER")
    return driver, [json.loads(text) for word, text in rows if word == "EXECUTOR"]


@pytest.mark.parametrize("mode", ["cluster", "client"])
def test_executors_run_on_the_labelled_node_and_the_master_elsewhere(grid, mode):
    done = grid.spark_submit(mode, *LABELLED, *GPUS, str(PROGRAMS / "where.py"))
    driver, executors = lines(grid, done, mode)
    assert [row["rank"] for row in executors] == [0, 1]
    assert {row["NM_PORT"] for row in executors} == {grid.labelled_port}
    assert sorted(row["gpu"] for row in executors) == [["0"], ["1"]]
    assert len({row["CONTAINER_ID"] for row in executors}) == 2
    assert driver["NM_PORT"] == (grid.plain_port if mode == "cluster" else None)
    master = grid.ask(f"apps/{application_of(done)}")["app"]["amHostHttpAddress"]
    assert master.endswith(f":{int(grid.plain_port) + 1}")
    assert grid.unfinished() == []


def test_a_container_that_takes_more_memory_than_it_asked_for_is_killed(grid):
    once = ("--conf", "spark.task.maxFailures=1", "--conf", "spark.yarn.max.executor.failures=1")
    done = grid.spark_submit("client", "--num-executors", "2", *once, str(PROGRAMS / "where.py"), "1500")
    assert done.returncode != 0
    assert (
        "is running beyond physical memory limits" in done.stderr or "exceeding physical memory limits" in done.stderr
    )
