from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import defaults
from caffe_on_grid.spec.job import JobSpec


def test_leaves_are_those_of_the_dataclasses() -> None:
    leaves = defaults.leaves()
    assert leaves["cluster.queue"] == defaults.Leaf("cluster.queue", str, None)
    assert leaves["cluster.gang_timeout_s"].type is float
    assert leaves["start.weights"].type is tuple
    assert leaves["cluster.conf"].type is dict
    assert not set(defaults.FIXED) & set(leaves)


@pytest.mark.parametrize("table", [defaults.CHOICES, defaults.MINIMA, dict.fromkeys(defaults.MEMORY)])
def test_tables_name_leaves(table: dict[str, object]) -> None:
    assert set(table) <= set(defaults.leaves())


def test_no_layer_is_the_dataclass_defaults() -> None:
    assert defaults.job(defaults.settings([]), ("train",), "s") == JobSpec(("train",), "s")


def test_later_layers_win_and_say_so() -> None:
    low = defaults.file_layer({"cluster": {"queue": "a", "executors": 2}, "spark_conf": {"x": 1, "y": True}}, "low")
    high = defaults.file_layer({"cluster": {"queue": "b"}, "spark_conf": {"x": 2}}, "high")
    both = defaults.settings([low, high])
    assert both.values["cluster.queue"] == "b"
    assert both.values["cluster.executors"] == 2
    assert both.values["cluster.conf"] == {"x": "2", "y": "true"}
    assert both.origins == {
        "cluster.queue": "high",
        "cluster.executors": "low",
        "cluster.conf.x": "high",
        "cluster.conf.y": "low",
    }


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"cluster": {"queu": "x"}}, "f: unknown key 'cluster.queu' (did you mean 'cluster.queue'?)"),
        ({"clutser": {}}, "f: unknown key 'clutser'"),
        ({"cluster": {"conf": {}}}, "f: unknown key 'cluster.conf'"),
        ({"solver": "x"}, "f: unknown key 'solver'"),
        ({"cluster": "x"}, "f: cluster: expected keys with values, got 'x'"),
        ({"engine": {"devices": 0}}, "f: engine.devices: expected at least 1, got 0"),
        ({"engine": {"devices": "two"}}, "f: engine.devices: expected a whole number, got 'two'"),
        ({"sync": {"connection": "ethernt"}}, "expected one of auto, ethernet, infiniband, got 'ethernt'"),
        ({"data": {"shuffle": "perhaps"}}, "f: data.shuffle: expected on or off, got 'perhaps'"),
        ({"cluster": {"executor_memory": "4 gigs"}}, "expected a memory size such as 512m or 4g, got '4 gigs'"),
        ({"cluster": {"gang_timeout_s": "soon"}}, "expected a duration such as 90s or 10m, got 'soon'"),
        ({"spark_conf": ["a"]}, "f: spark_conf: expected a map of Spark's settings, got ['a']"),
        (["a"], "f: expected keys with values, got ['a']"),
    ],
)
def test_bad_documents(document: object, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        defaults.file_layer(document, "f")


def test_variables() -> None:
    layer = defaults.environment_layer(
        {"CAFFE_ON_GRID_CLUSTER_QUEUE": "gpu", "CAFFE_ON_GRID_RUNTIME": "/r", "CAFFE_ON_GRID_OUTCOME": "x", "HOME": "/"}
    )
    assert layer.values == {"cluster.queue": "gpu", "runtime.path": "/r"}
    assert layer.origins["cluster.queue"] == "variable CAFFE_ON_GRID_CLUSTER_QUEUE"


def test_a_mistyped_variable_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"CAFFE_ON_GRID_CLUSTER_QUEU .did you mean 'CAFFE_ON_GRID_CLUSTER_QUEUE'"):
        defaults.environment_layer({"CAFFE_ON_GRID_CLUSTER_QUEU": "x"})


def test_profiles() -> None:
    document = {"cluster": {"queue": "a"}, "profiles": {"prod": {"cluster": {"queue": "b"}, "spark_conf": {"k": "v"}}}}
    assert defaults.profile_names(document, "f") == ("prod",)
    chosen = defaults.settings([defaults.file_layer(document, "f"), defaults.profile_layer(document, "f", "prod")])
    assert chosen.values["cluster.queue"] == "b"
    assert chosen.origins["cluster.queue"] == "f, profile prod"
    with pytest.raises(ConfigError, match="f, profile bad: unknown key"):
        defaults.profile_layer({"profiles": {"bad": {"x": 1}}}, "f", "bad")


def shipped_configuration(root: Path) -> dict[str, object]:
    """conf/caffe-on-grid.yaml with every key's `#` taken away."""
    text = (root / "conf" / "caffe-on-grid.yaml").read_text()
    document = yaml.safe_load(re.sub(r"^( *)#([a-z_]+:)", r"\1\2", text, flags=re.MULTILINE))
    assert isinstance(document, dict)
    return document


def test_the_shipped_configuration_names_every_key_with_its_default(root: Path) -> None:
    document = shipped_configuration(root)
    values = defaults.file_layer(document, "conf").values
    expected = {name: leaf.default for name, leaf in defaults.leaves().items()}
    assert dict(values) == expected
    assert document["profiles"] == {}


def test_the_shipped_configuration_sets_nothing_as_it_is(root: Path) -> None:
    assert yaml.safe_load((root / "conf" / "caffe-on-grid.yaml").read_text()) is None


def test_every_key_of_the_shipped_configuration_has_a_comment_above(root: Path) -> None:
    lines = (root / "conf" / "caffe-on-grid.yaml").read_text().splitlines()
    bare = ("keytab", "archives", "py_files")  # described by the line of the key above them
    for before, line in zip(lines, lines[1:]):
        key = re.match(r" *#([a-z_]+):", line)
        if key and not line.endswith(":") and key[1] not in bare:
            assert re.match(r" *# \S", before), line
