"""What the default suite knows of Oozie, held against Oozie's own jars."""

from __future__ import annotations

import base64
import subprocess
import zipfile
from pathlib import Path

import oozie_rules
import pytest

JARS = (
    "org.apache.oozie:oozie-client:5.2.1",
    "org.apache.oozie:oozie-sharelib-spark:5.2.1",
    "org.apache.commons:commons-lang3:3.12.0",
)
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
    """The jars by their names on Maven Central."""
    folder = tmp_path_factory.mktemp("jars")
    for artifact in JARS:
        words = [f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        done = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy", *words], capture_output=True, text=True, timeout=240
        )
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
