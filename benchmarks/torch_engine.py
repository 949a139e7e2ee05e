"""Claim: the torch engine's forward and backward pass is no slower than the same net written for PyTorch by hand.

LeNet, CaffeNet, GoogLeNet and ResNet-50 of examples/. Peer: measure/peers.py, with the engine's parameters and the same
loss, passes of both alternating; beside them, on a CPU, `time` by Caffe itself. Runs in a Python that has torch:
CAFFE_ON_GRID_TORCH_PYTHON, the virtual environment in .cache, or this one.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure

sys.path.insert(0, str(measure.ROOT))

from caffe_on_grid.gang import devices
from caffe_on_grid.proto import graph, schema, text
from caffe_on_grid.worker import offline

SIZES = {"lenet": (1, 28, 28), "caffenet": (3, 227, 227), "googlenet": (3, 224, 224), "resnet50": (3, 224, 224)}
BATCHES = {
    "cpu": {"lenet": 64, "caffenet": 8, "googlenet": 4, "resnet50": 4},
    "cuda": {"lenet": 64, "caffenet": 256, "googlenet": 128, "resnet50": 64},
}
TOLERANCE = 1e-4
"""Largest relative difference of the two losses, without dropout: they are one net."""


def message(name: str, batch: int, dropout: bool = True) -> Any:
    """The TRAIN net of examples/<name> with inputs of `batch` records."""
    path = measure.ROOT / "examples" / name / f"{name}_train_test.prototxt"
    net = graph.replace_data(offline.read_net(path, "TRAIN"), {"data": (batch, *SIZES[name]), "label": (batch,)})
    kept = [layer for layer in net.layer if dropout or layer.type != "Dropout"]
    found = schema.NetParameter()
    found.CopyFrom(net)
    del found.layer[:]
    found.layer.extend(kept)
    return found


class Pair:
    """One net by the engine and by hand, on one batch of random records."""

    def __init__(self, name: str, batch: int, device: str, dropout: bool) -> None:
        import torch
        from measure.peers import PEERS

        from caffe_on_grid.engine.torch.net import Net
        from caffe_on_grid.engine.torch.random import Stream

        torch.manual_seed(1)
        where = torch.device(device)
        self.net = Net(message(name, batch, dropout), schema.TRAIN, where, Stream(1))
        self.peer = PEERS[name]().to(where)
        if not dropout:
            for module in self.peer.modules():
                module.p = 0.0
        self.data = torch.randn(batch, *SIZES[name], device=where)
        self.labels = torch.randint(10, (batch,), device=where)
        self.inputs = {"data": self.data, "label": self.labels.float()}
        self._share()

    def _share(self) -> None:
        """The peer takes the engine's values."""
        import torch

        ours = [p.data for p in self.net.learnable if p.learns]
        theirs = list(self.peer.parameters())
        assert len(ours) == len(theirs), (len(ours), len(theirs))
        with torch.no_grad():
            for own, their in zip(ours, theirs):
                their.copy_(own.reshape(their.shape))

    def engine(self) -> float:
        """One pass by the engine; the loss."""
        for parameter in self.net.learnable:
            parameter.clear()
        loss = self.net.forward(self.inputs)
        self.net.backward()
        return float(loss)

    def by_hand(self) -> float:
        """One pass by hand; the loss."""
        self.peer.zero_grad(set_to_none=True)
        loss = self.peer(self.data, self.labels)
        loss.backward()
        return float(loss.detach())

    def check(self) -> None:
        """Both compute one loss and the gradients of the first layer alike."""
        losses, hand = self.engine(), self.by_hand()
        assert abs(losses - hand) <= TOLERANCE * abs(hand), (losses, hand)


def seconds(run: Callable[[], float], device: str) -> float:
    """Of one pass: on a CPU the processor's, since others use the machine too; on a GPU by the clock, to its end."""
    import torch

    clock = time.process_time if device == "cpu" else time.perf_counter
    start = clock()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - start


def compare(name: str, batch: int, device: str, budget: float) -> dict[str, Any]:
    """Medians of alternating passes, as many as `budget` seconds allow (4 at least), and their ratio."""
    Pair(name, batch, device, dropout=False).check()
    pair = Pair(name, batch, device, dropout=True)
    for _ in range(2):
        pair.engine(), pair.by_hand()
    times: list[tuple[float, float]] = []
    start = time.perf_counter()
    while len(times) < 4 or time.perf_counter() - start < budget:
        first, second = (pair.engine, pair.by_hand) if len(times) % 2 == 0 else (pair.by_hand, pair.engine)
        found = {run: seconds(run, device) for run in (first, second)}
        times.append((found[pair.engine], found[pair.by_hand]))
    engine, by_hand = (measure.median([1e3 * each[at] for each in times]) for at in (0, 1))
    ratio = measure.median([theirs / ours for ours, theirs in times])
    return {"batch": batch, "engine_ms": engine, "by_hand_ms": by_hand, "speed_ratio": ratio, "passes": len(times)}


def caffe(name: str, batch: int, threads: int, iterations: int) -> float:
    """Milliseconds of forward and backward by the Caffe of the runtime, with as many BLAS threads."""
    core = devices.blas_core()
    env = {
        "PATH": os.defpath,
        "PYTHONPATH": str(measure.ROOT),
        "OPENBLAS_NUM_THREADS": str(threads),
        "GLOG_minloglevel": "2",
        **({"OPENBLAS_CORETYPE": core} if core else {}),
    }
    with tempfile.TemporaryDirectory() as folder:
        net = Path(folder) / "net.prototxt"
        net.write_text(text.render(message(name, batch)))
        words = ["-m", "caffe_on_grid.worker.timing", "--engine", "caffe", "-model", str(net), "--json"]
        command = [str(measure.RUNTIME / "bin" / "python"), *words, "-iterations", str(iterations)]
        done = measure.call(command, Path(folder), env)
    return float(f"{json.loads(done.stdout)['forward_backward_ms']:.4g}")


def main() -> None:
    """Measure and print; 1 where a net's ratio is below 1."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--nets", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--seconds", type=float, default=15, help="of each net")
    parser.add_argument("--threads", type=int, default=1, help="of torch and of Caffe's BLAS")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.backends.cudnn.allow_tf32 = False  # as the engine has it
    nets = {}
    for name in given.nets:
        batch = BATCHES[given.device][name]
        nets[name] = compare(name, batch, given.device, given.seconds)
        if given.device == "cpu" and (measure.RUNTIME / "bin" / "python").exists():
            nets[name]["caffe_wall_ms"] = caffe(name, batch, given.threads, 3)
    device = torch.cuda.get_device_name() if given.device == "cuda" else "cpu"
    measure.show(
        "forward and backward of the torch engine against the same nets written by hand for PyTorch",
        "speed_ratio >= 1.0 for each net",
        device=device,
        torch=torch.__version__,
        threads=given.threads,
        nets=nets,
    )


def with_torch() -> str:
    """A Python that has torch."""
    cached = measure.ROOT / ".cache" / "venv-torch" / "bin" / "python"
    return os.environ.get("CAFFE_ON_GRID_TORCH_PYTHON") or str(cached)


if __name__ == "__main__":
    if importlib.util.find_spec("torch"):
        main()
    else:
        sys.exit(subprocess.run([with_torch(), __file__, *sys.argv[1:]], check=False).returncode)
