"""Every command of docs/cluster.md, in the document's order, as its reader types it."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nets
import pytest
from gateway import ARCHIVE, JARS, Gateway
from grids import ROOT, SCRIPT

BLOCK = re.compile(r"<!-- cluster -->\n```sh\n(.*?)```", re.DOTALL)


@pytest.fixture
def gateway(grid, runtime: Path, tmp_path: Path):
    """A person's folder: solver, net, records, the archive; the site's own settings are spark-defaults.conf's."""
    made = Gateway(tmp_path, runtime, grid=grid)
    (tmp_path / "caffe_on_grid.tgz").symlink_to(ARCHIVE)
    nets.write_lmdb(tmp_path / "train", 60)
    nets.write_lmdb(tmp_path / "test", 24, seed=9)
    net = nets.net(Path("/nowhere"), Path("/nowhere"), batch=6).replace('"/nowhere"', '"hdfs:///data/test"')
    nets.write_job(tmp_path, net, nets.solver(iterations=10))
    defaults = {**made.site(), "spark.yarn.jars": JARS, "spark.driver.memory": "512m"}
    (tmp_path / "conf").mkdir()
    text = "".join(f"{key} {value}\n" for key, value in defaults.items())
    (tmp_path / "conf" / "spark-defaults.conf").write_text(text)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "hdfs").write_text(
        f"#!/bin/sh\nshift\nexport GRID_HOME={grid.home}\nunset JDK_JAVA_OPTIONS\n"
        f'exec {SCRIPT} run org.apache.hadoop.fs.FsShell "$@"\n'
    )
    (tmp_path / "bin" / "hdfs").chmod(0o755)
    yield made
    made.close()
    grid.fs("-rm", "-r", "-f", "-skipTrash", "/models/net", "/models/net.caffemodel", "/data")


def test_the_guide(gateway: Gateway) -> None:
    commands = BLOCK.findall((ROOT / "docs" / "cluster.md").read_text())
    assert len(commands) == 6
    environment = gateway.environment()
    path = f"{gateway.folder}/bin:{ROOT}/bin:{environment['PATH']}"
    said = []
    for text in commands:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=gateway.folder,
            env={**environment, "PATH": path, "SPARK_CONF_DIR": str(gateway.folder / "conf")},
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
        said.append(done)
    assert "spark-submit" in said[2].stdout and "memory of a rank" in said[2].stderr
    assert re.fullmatch(r"application_\d+_\d+\n", said[3].stdout)
    assert "/models/net.caffemodel" in said[4].stdout and '"exit_code": 0' in said[4].stdout
    assert "test:" in said[5].stderr
