"""A user's folder, a home without configuration, and the command in this process."""

from __future__ import annotations

from pathlib import Path

import projects
import pytest
from projects import Run, Said

from caffe_on_grid import cli
from caffe_on_grid.cli import configuration


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home that is also the working directory; a runtime to look at; no system-wide configuration."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.chdir(path)
    monkeypatch.setenv("HOME", str(path))
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CAFFE_ON_GRID_RUNTIME", str(projects.fake_runtime(tmp_path / "runtime")))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(configuration, "SYSTEM", tmp_path / "etc")
    return path


@pytest.fixture
def project(home: Path) -> Path:
    """A project in the home."""
    projects.make(home)
    return home


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process."""

    def call(*words: str) -> Said:
        with pytest.raises(SystemExit) as end:
            cli.main(words)
        said = capsys.readouterr()
        code = end.value.code
        assert isinstance(code, int)
        return Said(code, said.out, said.err)

    return call
