"""`model_bytes.py ENGINE FOLDER`: builds each golden layer case's net from seed 5 and saves it.

Prints case → SHA-256 of the .caffemodel, or the engine's words where it refuses.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SEED = 5
MODEL = Path("net.caffemodel")


def caffe_save(prototxt: str, phase: str) -> None:
    """By real Caffe."""
    import caffe

    Path("net.prototxt").write_text(prototxt)
    caffe.set_random_seed(SEED)
    caffe.Net("net.prototxt", {"TRAIN": caffe.TRAIN, "TEST": caffe.TEST}[phase]).save(str(MODEL))


def torch_save(prototxt: str, phase: str) -> None:
    """By the torch engine's net."""
    import torch

    from caffe_on_grid.engine.torch import files
    from caffe_on_grid.engine.torch.net import Net
    from caffe_on_grid.engine.torch.random import Stream
    from caffe_on_grid.proto import schema, text, upgrade

    message = upgrade.upgrade_net(text.parse(schema.NetParameter, prototxt, "net"))
    number = {"TRAIN": schema.TRAIN, "TEST": schema.TEST}[phase]
    files.save_model(Net(message, number, torch.device("cpu"), Stream(SEED)), MODEL)


SAVERS: dict[str, Callable[[str, str], None]] = {"caffe": caffe_save, "torch": torch_save}


def main(engine: str, folder: Path) -> None:
    """Every case."""
    found: dict[str, Any] = {}
    paths = sorted(folder.resolve().glob("layers/*.npz"))
    with tempfile.TemporaryDirectory() as work:
        os.chdir(work)
        for path in paths:
            with np.load(path, allow_pickle=False) as case:
                SAVERS[engine](str(case["prototxt"]), str(case["phase"]))
            found[path.stem] = hashlib.sha256(MODEL.read_bytes()).hexdigest()
        os.chdir("/")
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
