"""The real command on a gateway of the grid: it has a Hadoop configuration and Spark, no Caffe and no MPI."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import nets
import pyspark
from grids import QUICK_JVM, ROOT, TAG, Grid
from spark.command import Command, Ended, Running

ARCHIVE = Path(os.environ.get("CAFFE_ON_GRID_ARCHIVE", ROOT / ".cache" / "caffe_on_grid.tgz"))
JARS = f"local:{Path(pyspark.__file__).parent}/jars/*"
SITE = {
    "spark.ui.enabled": "false",
    "spark.yarn.tags": TAG,
    "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
    "spark.driver.extraJavaOptions": QUICK_JVM,
    "spark.yarn.am.extraJavaOptions": QUICK_JVM,
    "spark.executor.extraJavaOptions": QUICK_JVM,
}
"""What makes JVMs small and quick; the two nodes of the grid share two cores with everything else."""


@dataclass
class Gateway(Command):
    """`Command` with the grid's configuration, and a site's file of settings in the working directory."""

    grid: Grid = field(default_factory=lambda: Grid(Path()))
    store: str = ""
    """Its folder on HDFS, while there is one."""

    @staticmethod
    def site() -> dict[str, str]:
        """The site's settings of Spark."""
        return dict(SITE)

    def settle(self, **more: str) -> Gateway:
        """Write the site's file; `more` are further settings of Spark, with _ for the dots."""
        conf = {**self.site(), **{key.replace("_", "."): value for key, value in more.items()}}
        cluster = {"master": "yarn", "driver_memory": "512m"}
        runtime = {"path": str(ARCHIVE), "blas_threads": 1}
        text = json.dumps({"cluster": cluster, "runtime": runtime, "spark_conf": conf})
        (self.folder / "caffe-on-grid.yaml").write_text(text)
        return self

    @contextmanager
    def stored(self, *folders: Path) -> Iterator[Gateway]:
        """With copies of `folders` in a `store` of its own; closed and removed at the end."""
        self.store = f"/tests/{self.folder.name}-{self.folder.stat().st_ino}"
        self.grid.fs("-mkdir", "-p", self.store)
        self.grid.fs("-put", *map(str, folders), self.store)
        yield self
        self.close()
        self.grid.fs("-rm", "-r", "-f", "-skipTrash", self.store)

    def net(self, source: str) -> str:
        """A net with batches of 6 that reads a folder of the `store`."""
        made = nets.net(Path("/nowhere"), Path("/nowhere"), batch=6)
        return made.replace('"/nowhere"', f'"hdfs://{self.store}/{source}"')

    def environment(self) -> dict[str, str]:
        """Nothing of the caller's, but for the grid."""
        plain = {k: v for k, v in super().environment().items() if k != "CAFFE_ON_GRID_RUNTIME"}
        names = ("HADOOP_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_SUBMIT_OPTS")
        return {**plain, **{name: self.grid.environment()[name] for name in names}}

    def nothing_left(self, ended: Ended, others: int = 0) -> None:
        """No application of the command is unfinished, and nothing of it is on this machine; `others` still run."""
        known = self.grid.unfinished()
        assert not [name for name in application_ids(ended.err) if name in known]
        assert len(self.left_behind()) == others


def application_ids(said: str) -> list[str]:
    """Those that were announced."""
    return [line.split()[2] for line in said.splitlines() if line.startswith("Submitted application application_")]


def submitted(running: Running) -> str:
    """The application's id, once it is announced."""
    return running.until(r"Submitted application (application_\d+_\d+)")[1]
