"""What the command says of a finished run."""

from __future__ import annotations

import json
from typing import Any

from caffe_on_grid.spec.run import RunRecord, dumps


def as_json(record: RunRecord) -> str:
    """One JSON object, on one line: the run, its outcome, its model, its last tests."""
    document = json.loads(dumps(record))
    fields = ("run_id", "application_id", "exit_code", "outcome", "cause", "model", "run_folder")
    found: dict[str, Any] = {name: document[name] for name in fields}
    found["tests"] = [{"task": task["task"], **test} for task in document["tasks"] for test in task["tests"]]
    return json.dumps(found, ensure_ascii=False)
