"""What the benchmarks share: the command on LeNet, its peer `caffe train`, and MNIST or records of its size."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = str(ROOT / "bin" / "caffe-on-grid")
RUNTIME = Path(os.environ.get("CAFFE_ON_GRID_RUNTIME", ROOT / ".cache" / "runtime"))
BATCH = 64
"""Records of one rank's step in examples/lenet/lenet_train_test.prototxt."""
DISPLAY = 10
"""Steps from one line of speed to the next."""
SYNTHETIC_RECORDS = 10_000
DEADLINE_S = 900

SOLVER = """net: "{net}"
base_lr: 0.01
momentum: 0.9
weight_decay: 0.0005
lr_policy: "inv"
gamma: 0.0001
power: 0.75
display: {display}
max_iter: {iterations}
snapshot_after_train: false
snapshot_prefix: "lenet"
random_seed: 1
solver_mode: CPU
"""
"""LeNet's settings without tests and snapshots: the steps alone are compared."""


@dataclass(frozen=True)
class Course:
    """LMDBs of LeNet's names in a folder, and what they hold."""

    data: Path
    records: str


@contextlib.contextmanager
def course() -> Iterator[Course]:
    """The demo's MNIST where it has been made, else random records of the same size."""
    made = ROOT / ".cache" / "mnist"
    if (made / "mnist_train_lmdb" / "data.mdb").exists():
        yield Course(made, "MNIST, 60,000 records")
        return
    with tempfile.TemporaryDirectory() as folder:
        synthetic(Path(folder) / "mnist_train_lmdb")
        yield Course(Path(folder), f"random, {SYNTHETIC_RECORDS:,} records")


def synthetic(folder: Path) -> None:
    """An LMDB of random 28 x 28 images, through `convert`."""
    random = os.urandom(SYNTHETIC_RECORDS * 784)
    images = b"\0\0\x08\x03" + b"".join(n.to_bytes(4, "big") for n in (SYNTHETIC_RECORDS, 28, 28)) + random
    labels = b"\0\0\x08\x01" + SYNTHETIC_RECORDS.to_bytes(4, "big") + bytes(i % 10 for i in range(SYNTHETIC_RECORDS))
    with tempfile.TemporaryDirectory() as idx:
        for name, content in (("images", images), ("labels", labels)):
            Path(idx, name).write_bytes(content)
        subprocess.run([COMMAND, "convert", "mnist", f"{idx}/images", f"{idx}/labels", folder], check=True)


@dataclass(frozen=True)
class Run:
    """One run of the command: how long it took in all, its run.json and its metrics.jsonl."""

    wall_s: float
    record: dict[str, Any]
    metrics: list[dict[str, Any]]

    @property
    def speeds(self) -> list[float]:
        """Images a second of all ranks from each displayed iteration to the next, as rank 0 counts its steps' time."""
        ranks = len(self.record["tasks"][0]["ranks"])
        shown = [line for line in self.metrics if line["kind"] == "stepped" and line["rank"] == 0 and line["displayed"]]
        spans = [(b["iteration"] - a["iteration"], b["seconds"] - a["seconds"]) for a, b in itertools.pairwise(shown)]
        return [ranks * BATCH * steps / seconds for steps, seconds in spans]


def solver(folder: Path, iterations: int) -> Path:
    """A solver of so many steps, in `folder`."""
    path = folder / "solver.prototxt"
    net = ROOT / "examples" / "lenet" / "lenet_train_test.prototxt"
    path.write_text(SOLVER.format(net=net, iterations=iterations, display=DISPLAY))
    return path


def grid(place: Course, iterations: int, ranks: int, blas: str) -> Run:
    """`caffe-on-grid train` on as many local executors as ranks, one BLAS thread each."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-conf", str(solver(Path(folder), iterations)), "-model", f"{folder}/net.caffemodel", "--json"]
        where = ["--master", f"local[{ranks}]", "--num-executors", str(ranks)]
        threads = ["--blas-threads", "1", "--blas-core", blas]
        begin = time.perf_counter()
        done = call([COMMAND, "train", *words, *where, *threads], place.data, os.environ)
        wall = time.perf_counter() - begin
        run = Path(json.loads(done.stdout)["run_folder"])
        metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return Run(wall, json.loads((run / "run.json").read_text()), metrics)


_RATE = re.compile(r"Iteration \d+ \([\d.e+-]+ iter/s, ([\d.e+-]+)s/(\d+) iters?\)")


def caffe(place: Course, iterations: int, blas: str) -> list[float]:
    """Images a second of `caffe train` of the same runtime, one BLAS thread, from each displayed iteration to the next.

    By its log, which tells the seconds between two.
    """
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_CORETYPE": blas, "GLOG_logtostderr": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(RUNTIME / "bin" / "caffe"), "train", f"-solver={solver(Path(folder), iterations)}"]
        done = call(command, place.data, {**os.environ, **threads})
    return [BATCH * int(steps) / float(s) for s, steps in _RATE.findall(done.stderr) if int(steps) == DISPLAY]


def call(command: list[str], folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; its words are shown where it fails."""
    done = subprocess.run(
        command, check=False, cwd=folder, env=dict(env), capture_output=True, text=True, timeout=DEADLINE_S
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done


def blas_core(place: Course) -> str:
    """The OpenBLAS core type that the tool chooses on this machine (from a run of one step)."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["-conf", str(solver(Path(folder), 1)), "-model", f"{folder}/net.caffemodel", "--json"]
        done = call([COMMAND, "train", *words, "--master", "local[1]"], place.data, os.environ)
        lines = Path(json.loads(done.stdout)["run_folder"], "metrics.jsonl").read_text().splitlines()
    started = next(line for line in map(json.loads, lines) if line["kind"] == "started")
    return str(started["blas"].split(",")[0])


def undisturbed(speeds: list[float]) -> float:
    """The third quartile: other users of a machine's cores only ever slow a program down, each at other moments."""
    return float(f"{statistics.quantiles(speeds, n=4)[2]:.4g}")


def median(values: list[float]) -> float:
    """The median, to four digits."""
    return float(f"{statistics.median(values):.4g}")


def show(claim: str, target: str, **measured: object) -> None:
    """Print one benchmark's JSON object."""
    machine = {"cores": os.cpu_count(), "load_1min": round(os.getloadavg()[0], 2)}
    print(json.dumps({"benchmark": Path(sys.argv[0]).stem, "claim": claim, "target": target, **measured, **machine}))
