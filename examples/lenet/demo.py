"""LeNet on MNIST with two Spark executors and MPI between them: `make demo`.

Gets MNIST, writes it as two LMDBs with `caffe-on-grid convert`, trains with `caffe-on-grid train`, and says what came
of it. Ends non-zero unless the test accuracy is what LeNet reaches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from caffe_on_grid.spec import run as records
from caffe_on_grid.storage import paths

ROOT = Path(__file__).resolve().parent.parent.parent
COMMAND = str(ROOT / "bin" / "caffe-on-grid")
DATABASES = {"mnist_train_lmdb": "train", "mnist_test_lmdb": "t10k"}
"""LMDB → first word of its idx files."""


@dataclass(frozen=True)
class Course:
    """A solver and the test accuracy that it must reach."""

    solver: str
    accuracy: float


SHORT = Course("lenet_solver_short.prototxt", 0.985)
FULL = Course("lenet_solver_two_devices.prototxt", 0.989)


def prepare(folder: Path) -> None:
    """Make `folder` hold MNIST as two LMDBs; what is current stays."""
    subprocess.run([sys.executable, ROOT / "packaging" / "mnist.py", folder], check=True)
    for name, first in DATABASES.items():
        files = [folder / f"{first}-images-idx3-ubyte", folder / f"{first}-labels-idx1-ubyte"]
        data = folder / name / "data.mdb"
        if not data.exists() or data.stat().st_mtime < max(file.stat().st_mtime for file in files):
            subprocess.run([COMMAND, "convert", "mnist", *files, folder / name, "--overwrite"], check=True)


def train(course: Course, data: Path, model: Path, engine: str) -> records.RunRecord:
    """Train on two executors with one rank each, live output shown; what the run says of itself."""
    words = ["-conf", ROOT / "examples" / "lenet" / course.solver, "-model", model, "--overwrite"]
    where = ["--master", "local[2]", "--num-executors", "2", "--engine", engine, "--json"]
    done = subprocess.run(
        [COMMAND, "train", *map(str, words), *where], cwd=data, stdout=subprocess.PIPE, text=True, check=True
    )
    uri = paths.join(json.loads(done.stdout)["run_folder"], "run.json")
    return records.loads(local(uri).read_text(encoding="utf-8"), uri)


def local(uri: str) -> Path:
    """The local path of what the demo has written."""
    path = paths.local_path(uri)
    assert path is not None
    return path


def summary(record: records.RunRecord) -> str:
    """What the demo has to show, line by line."""
    task = record.tasks[0]
    executors = [f"executor {one.executor}: process {one.pid} on {one.host}" for one in task.executors]
    ranks = [f"rank {one.rank}: process {one.pid} on {one.host}, executor {one.executor}" for one in task.ranks]
    totals = task.totals
    speed = f"{totals.samples:,} images, {totals.images_per_second:,.0f} a second"
    work = f"{speed}; exchanged {totals.exchanged_bytes:,} bytes"
    files = {
        "model": record.model,
        "run.json": paths.join(record.run_folder, "run.json"),
        "metrics": paths.join(record.run_folder, "metrics.jsonl"),
        "picture": paths.join(record.run_folder, "curves.png"),
    }
    named = [f"{name + ':':10}{uri}" for name, uri in files.items()]
    digest = f"parameters equal on all {task.world} ranks: sha256 {task.digest}"
    return "\n".join([*executors, *ranks, f"engine: {record.versions.engine}", work, digest, *named])


def accuracy(record: records.RunRecord) -> float:
    """The last test's, 0 to 1."""
    return record.tasks[0].tests[-1].outputs["accuracy"][0]


def main() -> int:
    """Run the demo; 1 if the accuracy is too low or the parameters were not compared."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="10,000 iterations instead of 2,500")
    parser.add_argument("--output", type=Path, default=ROOT / "demo-output", help="folder of what it leaves")
    parser.add_argument("--engine", choices=("auto", "caffe", "torch"), default="auto", help="what steps the net")
    given = parser.parse_args()
    course = FULL if given.full else SHORT
    data = ROOT / ".cache" / "mnist"
    try:
        prepare(data)
        record = train(course, data, given.output.absolute() / "lenet.caffemodel", given.engine)
    except subprocess.CalledProcessError as error:
        return error.returncode  # the program has said why
    print(summary(record))
    reached = accuracy(record)
    print(f"test accuracy: {reached:.2%} after {record.tasks[0].totals.iterations} iterations")
    good = reached >= course.accuracy and record.tasks[0].digest is not None
    if not good:
        print(f"that is below {course.accuracy:.1%}, or parameters were not compared", file=sys.stderr)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
