"""Claims, on a grid: a job's first step comes 5 s or less after an empty barrier job, submitted the same way, is done.

Two executors, the driver in the cluster, all uploads done before. The peer is our own spark-submit line (`--dry-run`)
with a program in it that passes one barrier and ends. `uploaded` are the bytes of a second submission, Spark's own copy
of the Hadoop configuration apart (`spark_conf`). Without a grid (`make grid`) nothing is measured.
"""

from __future__ import annotations

import argparse
import getpass
import json
import os
import shlex
import sys
import tempfile
import time
import uuid
from pathlib import Path

import measure

sys.path.insert(0, str(measure.ROOT))

from caffe_on_grid.storage.registry import connect

CONF = measure.ROOT / ".cache" / "grid" / "conf"
ARCHIVE = measure.ROOT / ".cache" / "caffe_on_grid.tgz"
BARRIER = """import sys, time
from pyspark import BarrierTaskContext, SparkContext
sc = SparkContext()
def task(rows):
    BarrierTaskContext.get().barrier()
    return [time.time()]
sc.parallelize([0, 1], 2).barrier().mapPartitions(task).saveAsTextFile(sys.argv[1])
"""


class Place:
    """LeNet's records and results on the grid's HDFS, removed at the end."""

    def __init__(self, folder: Path, lmdbs: Path) -> None:
        self.folder, self.root = folder, f"/benchmarks/grid_start-{uuid.uuid4().hex[:8]}"
        store = connect("hdfs:///")
        store.make_folder(f"hdfs://{self.root}")
        for path in sorted((lmdbs / "mnist_train_lmdb").iterdir()):
            store.publish(path, f"hdfs://{self.root}/train/{path.name}")
        self.solver = measure.solver(folder, 1)

    def words(self, model: str) -> list[str]:
        """The command."""
        data = [
            "-conf",
            str(self.solver),
            "-input",
            f"hdfs://{self.root}/train",
            "-model",
            f"hdfs://{self.root}/{model}",
        ]
        return [
            measure.COMMAND,
            "train",
            *data,
            "--deploy-mode",
            "cluster",
            "--num-executors",
            "2",
            "--node-label",
            "gpu",
        ]

    def first_step(self, model: str, *more: str) -> tuple[float, dict[str, object]]:
        """Seconds from the command's start to rank 0's first step, and what the command says of the run."""
        begin = time.time()
        said = json.loads(measure.call([*self.words(model), "--json", *more], self.folder, os.environ).stdout)
        uri = f"{said['run_folder']}/metrics.jsonl"
        lines = [json.loads(line) for line in connect(uri).read(uri).decode().splitlines()]
        return float(next(line["time"] for line in lines if line["kind"] == "stepped")) - begin, said

    def barrier(self, name: str) -> float:
        """Seconds from the start of spark-submit to the end of a barrier."""
        line = measure.call([*self.words(name), "--dry-run"], self.folder, os.environ).stdout
        words = shlex.split(line)
        program = next(at for at, word in enumerate(words) if word.endswith("caffe_on_grid_driver.py"))
        (self.folder / "barrier.py").write_text(BARRIER)
        uri = f"hdfs://{self.root}/{name}"
        begin = time.time()
        command = ["env", *words[:program], str(self.folder / "barrier.py"), uri]
        measure.call(command, self.folder, os.environ)
        return float(connect(uri).read(f"{uri}/part-00000")) - begin

    def uploaded(self, application: str) -> dict[str, int]:
        """Bytes of each file that spark-submit has staged for an application that was told to keep them."""
        uri = f"hdfs:///user/{os.environ.get('HADOOP_USER_NAME') or getpass.getuser()}/.sparkStaging/{application}"
        store = connect(uri)
        sizes = {name: store.size(f"{uri}/{name}") for name in store.names(uri)}
        store.remove(uri)
        return sizes


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("HADOOP_CONF_DIR", str(CONF))
    os.environ["CAFFE_ON_GRID_RUNTIME_PATH"] = str(ARCHIVE)
    if not Path(os.environ["HADOOP_CONF_DIR"], "core-site.xml").is_file():
        print(json.dumps({"benchmark": "grid_start", "not_run": "no grid: `make grid` starts one"}))
        return
    steps, barriers = [], []
    with measure.course() as course, tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), course.data)
        try:
            place.first_step("first.caffemodel")  # its uploads are not what is measured
            for turn in range(given.repeats):
                barriers.append(place.barrier(f"barrier-{turn}"))
                steps.append(place.first_step(f"{turn}.caffemodel")[0])
            _, said = place.first_step("kept.caffemodel", "--conf", "spark.yarn.preserve.staging.files=true")
            sizes = place.uploaded(str(said["application_id"]))
        finally:
            connect("hdfs:///").remove(f"hdfs://{place.root}")
    own = sum(size for name, size in sizes.items() if "__spark_conf__" not in name)
    measure.show(
        "seconds from the command to the first training step on YARN, beyond an empty barrier job; bytes uploaded",
        "beyond <= 5, uploaded <= 100000",
        beyond=round(measure.median(steps) - measure.median(barriers), 2),
        first_step=measure.median(steps),
        empty_barrier=measure.median(barriers),
        uploaded=own,
        spark_conf=sum(sizes.values()) - own,
        repeats=given.repeats,
        records=course.records,
    )


if __name__ == "__main__":
    main()
