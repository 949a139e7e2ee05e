"""One host's agent without Spark: `host_agent.py PLAN EXECUTOR FOLDER`; PLAN is the JSON that the test wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from caffe_on_grid.comm import channel
from caffe_on_grid.gang import agent
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import JobSpec


def main() -> None:
    asked = json.loads(Path(sys.argv[1]).read_text())
    executor, folder = int(sys.argv[2]), Path(sys.argv[3])
    key = bytes.fromhex(asked["key"])
    plan = GangPlan(
        codec.decode(JobSpec, asked["job"], "job"),
        "train",
        "run-1",
        asked["run_folder"],
        7,
        tuple(asked["driver"]),
        key,
    )
    barrier = channel.dial(tuple(asked["barrier"]), key, 30)

    def gather(text: str) -> list[str]:
        barrier.send({"executor": executor, "text": text})
        answer = barrier.receive(60)
        assert answer is not None, "the other hosts do not come"
        return answer["texts"]

    agent.conduct(plan, agent.Task(executor, gather, (), (folder,)), agent.Program(ranks=tuple(asked["ranks"])))


main()
