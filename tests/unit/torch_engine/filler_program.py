"""`filler_program.py CASES`: the torch engine's side of tests/oracle/fillers_in_caffe.py."""

from __future__ import annotations

import hashlib
import json
import sys

from caffe_on_grid.engine.torch import fillers
from caffe_on_grid.engine.torch.random import Stream
from caffe_on_grid.proto import schema, text


def run(case: dict) -> list[str]:
    """Digest and the next number's bytes."""
    stream = Stream(case["seed"])
    filler = text.parse(schema.message("FillerParameter"), case["filler"], "filler")
    values = fillers.fill(filler, case["shape"], stream)
    return [hashlib.sha256(values.tobytes()).hexdigest(), stream.uniform(1, 0, 1).tobytes().hex()]


if __name__ == "__main__":
    print(json.dumps([run(case) for case in json.loads(sys.argv[1])]))
