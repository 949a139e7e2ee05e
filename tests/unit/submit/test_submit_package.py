from __future__ import annotations

import io
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from caffe_on_grid.submit import package


def test_the_package_zip_is_deterministic_and_whole() -> None:
    content = package.package_zip()
    assert content == package.package_zip()
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert "caffe_on_grid/__init__.py" in names
    assert "caffe_on_grid/proto/fields.txt" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_package_runs_from_its_zip_and_makes_the_same_zip(tmp_path: Path) -> None:
    path = package.cached_zip({"XDG_CACHE_HOME": str(tmp_path)})
    assert path.parent == tmp_path / "caffe-on-grid"
    code = "import sys; from caffe_on_grid.submit import package; sys.stdout.buffer.write(package.package_zip())"
    again = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(path)}, cwd="/", capture_output=True, check=True
    )
    assert again.stdout == path.read_bytes()
    assert package.cached_zip({"XDG_CACHE_HOME": str(tmp_path)}) == path
    assert list(path.parent.iterdir()) == [path]


def test_a_home_that_cannot_be_written_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the same file serves the next time."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    blocked = tmp_path / "file"
    blocked.touch()
    path = package.cached_zip({"HOME": str(blocked)})
    assert path.read_bytes() == package.package_zip()
    assert package.cached_zip({}) == path


def test_folder_zip_does_not_depend_on_times(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b").write_text("b")
    (tmp_path / "a").write_text("a")
    first = package.folder_zip(tmp_path)
    (tmp_path / "a").touch()
    assert package.folder_zip(tmp_path) == first
    assert zipfile.ZipFile(io.BytesIO(first)).namelist() == ["a", "sub/b"]
