"""The engine against the `caffe` tool: from the same weights, over the same LMDB, to the same model."""

from __future__ import annotations

import subprocess
from pathlib import Path

import nets
import numpy as np
import pytest

from caffe_on_grid.proto import weights

SOLVERS = {
    "sgd": "momentum: 0.9 weight_decay: 0.004",
    "iter_size and clipping": 'iter_size: 3 clip_gradients: 0.5 momentum: 0.9 type: "Nesterov"',
}


def blobs(path: Path) -> list[np.ndarray]:
    """All values of a model."""
    model = weights.read_model(path.read_bytes())
    return [weights.blob_array(blob)[1] for layer in model.layer for blob in layer.blobs]


@pytest.mark.runtime
@pytest.mark.parametrize("settings", list(SOLVERS))
def test_same_model_as_caffe_train(settings, tmp_path, runtime, runtime_env, in_runtime, root) -> None:
    """Bit for bit, after 12 steps that wrap around the LMDB."""
    nets.write_lmdb(tmp_path / "records", 28)
    (tmp_path / "net.prototxt").write_text(nets.net(Path("records"), Path("records"), batch=5))
    (tmp_path / "solver.prototxt").write_text(nets.solver(iterations=12, more=SOLVERS[settings], test=False))
    program = [str(root / "tests" / "oracle" / "engine_against_caffe.py")]
    in_runtime(program, cwd=tmp_path)
    in_runtime(program, cwd=tmp_path)
    train = [str(runtime / "bin" / "caffe"), "train", "-solver", "solver.prototxt", "-weights", "start.caffemodel"]
    subprocess.run(train, cwd=tmp_path, env=runtime_env, check=True, capture_output=True, timeout=120)
    start, mine, caffes = (blobs(tmp_path / f"{n}.caffemodel") for n in ("start", "engine", "small_iter_12"))
    assert len(mine) == len(caffes) == 6
    assert all(np.array_equal(a, b) for a, b in zip(mine, caffes))
    assert not any(np.array_equal(a, b) for a, b in zip(mine, start))
