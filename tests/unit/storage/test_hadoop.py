"""The Hadoop configuration: found, read as Hadoop reads it, and what plain paths mean by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.storage import hadoop

VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "HADOOP_HOME", "HADOOP_USER_NAME", "PWD")


@pytest.fixture(autouse=True)
def nowhere(monkeypatch, tmp_path):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def configuration(folder: Path, name: str = "core-site.xml", **settings: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(
        f"<property><name>{key.replace('__', '-').replace('_', '.')}</name><value>{value}</value></property>"
        for key, value in settings.items()
    )
    (folder / name).write_text(f"<?xml version='1.0'?><configuration>{rows}</configuration>")
    return folder


def test_without_a_configuration_every_uri_stays():
    assert hadoop.folder() is None
    assert [hadoop.qualify(uri) for uri in ("/a", "a", "hdfs:///a")] == ["/a", "a", "hdfs:///a"]


@pytest.mark.parametrize(
    ("variable", "below"),
    [
        ("HADOOP_CONF_DIR", ""),
        ("YARN_CONF_DIR", ""),
        ("HADOOP_HOME", "etc/hadoop"),
        ("PWD", "__spark_conf__/__hadoop_conf__"),
    ],
)
def test_where_it_is_looked_for(variable, below, monkeypatch, tmp_path):
    monkeypatch.setenv(variable, str(tmp_path / "place"))
    found = configuration(tmp_path / "place" / below, fs_defaultFS="hdfs://one:9000")
    assert hadoop.folder() == found
    assert hadoop.default_fs() == "hdfs://one:9000"


@pytest.mark.parametrize(
    ("uri", "meaning"),
    [
        ("/data/x", "hdfs://grid/data/x"),
        ("data/x", "hdfs://grid/user/ann/data/x"),
        ("hdfs:///data", "hdfs://grid/data"),
        ("hdfs:/data", "hdfs://grid/data"),
        ("hdfs://other:9000/data", "hdfs://other:9000/data"),
        ("file:/data", "file:/data"),
        ("webhdfs:///data", "webhdfs:///data"),
    ],
)
def test_what_a_uri_means(uri, meaning, monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(configuration(tmp_path / "c", fs_defaultFS="hdfs://grid/")))
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    assert hadoop.qualify(uri) == meaning


def test_a_local_default_leaves_plain_paths_local(monkeypatch, tmp_path):
    monkeypatch.setenv("HADOOP_CONF_DIR", str(configuration(tmp_path / "c", fs_defaultFS="file:///")))
    assert hadoop.qualify("/data") == "/data"


def test_variables_are_substituted_and_circles_end(monkeypatch, tmp_path):
    monkeypatch.setenv("NODE", "seven")
    settings = {"a": "${b}/${env.NODE}", "b": "<![CDATA[x&y]]>", "c": "${c}", "d": "${unknown}"}
    monkeypatch.setenv("HADOOP_CONF_DIR", str(configuration(tmp_path / "c", **settings)))
    found = hadoop.settings()
    assert (found["a"], found["c"], found["d"]) == ("x&y/seven", "${c}", "${unknown}")


def test_addresses_of_one_and_of_two_name_nodes(monkeypatch, tmp_path):
    folder = configuration(tmp_path / "c", fs_defaultFS="hdfs://one:9000")
    high = {"dfs_ha_namenodes_grid": "a, b"}
    high |= {f"dfs_namenode_http__address_grid_{node}": f"{node}:9870" for node in "ab"}
    configuration(folder, "hdfs-site.xml", dfs_namenode_http__address="one:50070", **high)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(folder))
    assert hadoop.name_nodes("grid", "http-address") == ["a:9870", "b:9870"]
    assert hadoop.name_nodes("one:9000", "http-address") == ["one:50070"]
    assert hadoop.name_nodes("elsewhere:9000", "http-address") == []


def test_broken_xml_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "core-site.xml").write_text("<configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"core-site\.xml: not a Hadoop configuration") as caught:
        hadoop.settings()
    assert "\n" not in str(caught.value)
