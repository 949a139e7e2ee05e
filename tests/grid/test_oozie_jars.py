"""What the default suite knows of Oozie, held against Oozie's own jars."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import nets
import oozie_rules
import pytest
from grids import ROOT, Grid
from lxml import etree

PARSER = Path(__file__).with_name("programs") / "oozie"
pytestmark = pytest.mark.timeout(900)  # Maven fetches a hundred jars
PROGRAM = """package org.apache.oozie.action.hadoop;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.stream.Collectors;
public class Split {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        while (in.hasNextLine()) {
            String opts = new String(Base64.getDecoder().decode(in.nextLine()), StandardCharsets.UTF_8);
            System.out.println(SparkOptionsSplitter.splitSparkOpts(opts).stream()
                .map(w -> Base64.getEncoder().encodeToString(w.getBytes(StandardCharsets.UTF_8)))
                .collect(Collectors.joining(" ")));
        }
    }
}
"""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Oozie's jars by their names on Maven Central, and what they need."""
    folder = tmp_path_factory.mktemp("jars")
    words = ["mvn", "-q", "-B", "-f", PARSER / "pom.xml", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def test_our_copies_of_the_schemas_are_oozies(jars: Path) -> None:
    with zipfile.ZipFile(jars / "oozie-client-5.2.1.jar") as packed:
        for path in oozie_rules.SCHEMAS.glob("*.xsd"):
            assert packed.read(path.name) == path.read_bytes(), path.name


OPTS = [
    "--conf a=b",
    '--conf "a=b c" --verbose',
    '--conf a="b c"',
    '--conf a_b="b c"',
    "--conf a=b c  d --queue  x",
    '--conf a="b" "c"',
    '--conf "a" --x-y=1 --conf=2',
    "stray --conf a",
    "  --conf  a  ",
    "--conf a--b",
    "--conf 'a b'",
    '--conf "é ü"',
    '--conf a="" --b',
    "--conf a=\u00a0 --c",
    "--",
    "",
    '--conf "  a  "',
    "--conf\ta\t--d",
]


def test_our_port_of_the_splitter_is_oozies(jars: Path, tmp_path: Path) -> None:
    source = tmp_path / "Split.java"
    source.write_text(PROGRAM)
    path = f"{tmp_path}:{jars}/*"
    subprocess.run(["javac", "-proc:none", "-cp", path, "-d", tmp_path, source], check=True, capture_output=True)
    lines = "\n".join(base64.b64encode(opts.encode()).decode() for opts in OPTS)
    words = ["java", "-cp", path, "org.apache.oozie.action.hadoop.Split"]
    said = subprocess.run(words, input=lines, capture_output=True, text=True, check=True, timeout=60).stdout
    found = [[base64.b64decode(word).decode() for word in line.split()] for line in said.split("\n")[:-1]]
    assert found == [oozie_rules.split(opts) for opts in OPTS]


@pytest.fixture(scope="module")
def parser_path(grid: Grid, jars: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Class path and home of Oozie's own parser, on the grid's Hadoop."""
    folder = tmp_path_factory.mktemp("parser")
    for name in ("conf", "logs"):
        (folder / name).mkdir()
    shutil.copy(PARSER / "oozie-site.xml", folder / "conf")
    path = f"{folder}:{jars}/*:{grid.home}/lib/*"
    compiled = ["javac", "-proc:none", "-cp", path, "-d", folder, PARSER / "Parse.java"]
    subprocess.run(compiled, check=True, capture_output=True)
    return path, folder


def rendered(grid: Grid, folder: Path, action: str) -> Path:
    """A workflow application of a job with a label, a queue, and a setting with blanks."""
    job = nets.write_job(folder / "job", nets.net(Path("/train"), Path("/test"), batch=6), nets.solver())
    data = ["-conf", job / "solver.prototxt", "-input", "hdfs:///data/train", "-model", "hdfs:///models/m.caffemodel"]
    placed = ["--num-executors", 2, "--node-label", "gpu", "--queue", "default", "--conf", "spark.some.words=two words"]
    words = ["--action", action, *data, *placed, "--runtime", "hdfs:///apps/caffe_on_grid.tgz", folder / action]
    command = [str(ROOT / "bin" / "caffe-on-grid"), "oozie", *map(str, words)]
    subprocess.run(command, env={**os.environ, "HADOOP_CONF_DIR": str(grid.conf)}, check=True, capture_output=True)
    return folder / action


def test_oozies_own_parser_takes_our_workflows(grid: Grid, parser_path: tuple[str, Path], tmp_path: Path) -> None:
    """And refuses one whose action leads nowhere."""
    folders = [rendered(grid, tmp_path, action) for action in ("shell", "spark")]
    broken = shutil.copytree(folders[0], tmp_path / "broken")
    text = (broken / "workflow.xml").read_text()
    assert '<ok to="end"' in text
    (broken / "workflow.xml").write_text(text.replace('<ok to="end"', '<ok to="nowhere"'))
    nodes = {
        folder: [n.get("name") for n in etree.parse(folder / "workflow.xml").getroot() if n.get("name")]
        for folder in folders
    }
    asked = "\n".join(" ".join(map(str, [folder, *nodes.get(folder, [])])) for folder in [*folders, broken])
    path, home = parser_path
    words = ["java", f"-Doozie.home.dir={home}", "-cp", path, "Parse"]
    said = subprocess.run(words, input=asked, capture_output=True, text=True, check=True, timeout=120).stdout
    *taken, refused = [line[7:] for line in said.splitlines() if line.startswith("PARSED ")]
    for folder, line in zip(folders, taken):
        assert [pair.split("=")[0] for pair in line.split(";")[:-1]] == nodes[folder], line
        assert "none" not in line
    assert len(taken) == 2 and "nowhere" in refused and refused.startswith("E0")
