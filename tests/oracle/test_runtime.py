"""The built runtime itself: complete, relocatable, right in its numbers, and in conda's layout too."""

from __future__ import annotations

import shutil
import sys
import tarfile
from pathlib import Path

import pytest

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.submit import archive

pytestmark = pytest.mark.runtime


def test_the_runtime_is_complete(runtime: Path) -> None:
    facts = archive.verify(runtime)
    assert (facts.caffe, facts.numpy, facts.protobuf, facts.python[:3]) == ("1.0.0", "1.19.5", "3.12.4", "3.9")
    assert facts.mpi.startswith("MPICH Version: 4.3")
    assert facts.hdfs == "2.7.3"


def test_a_foreign_environment_does_not_leak_in(runtime: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "caffe.py").write_text("raise RuntimeError('the wrong caffe')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PYTHONHOME", sys.prefix)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert archive.verify(runtime, libraries=False).caffe == "1.0.0"


@pytest.fixture(scope="module")
def copied(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another copy of the runtime, elsewhere (hard links where the file system allows)."""
    folder = tmp_path_factory.mktemp("elsewhere") / "copy"
    shutil.copytree(runtime, folder, symlinks=True)
    return folder


def test_a_missing_library_is_named(copied: Path) -> None:
    library = copied / "lib64" / "libboost_python39.so.1.74.0"
    aside = library.rename(copied / "aside")
    try:
        assert any("_caffe" in line and library.name in line for line in archive.missing_libraries(copied))
        with pytest.raises(EnvironmentFault, match=r"caffe: libboost_python39\.so\.1\.74\.0"):
            archive.verify(copied)
    finally:
        aside.rename(library)


def test_conda_pack_s_layout(copied: Path, tmp_path: Path) -> None:
    """The files of the real runtime, laid out as conda-pack lays them out: libraries in lib/, a bin/conda-unpack."""
    (copied / "bin" / "conda-unpack").write_text(
        "import pathlib\nprefix = pathlib.Path(__file__).parents[1]\n"
        "text = prefix / 'lib' / 'prefix.txt'\ntext.write_text(text.read_text().replace('/placeholder', str(prefix)))\n"
    )
    (copied / "lib" / "prefix.txt").write_text("prefix=/placeholder")
    for library in (copied / "lib64").iterdir():
        library.rename(copied / "lib" / library.name)
    (copied / "lib64").rmdir()
    (copied / "lib64").symlink_to("lib")
    tgz = tmp_path / "conda.tar"
    with tarfile.open(tgz, "w") as tar:
        for path in sorted(copied.iterdir()):
            tar.add(path, path.name)
    folder = archive.unpack(tgz, tmp_path / "cache")
    assert archive.verify(folder).caffe == "1.0.0"
    assert (folder / "lib" / "prefix.txt").read_text() == f"prefix={folder}"


PRODUCTS = """
import ctypes
import numpy as np
import caffe
lib = ctypes.CDLL("libopenblas.so.0")
random = np.random.RandomState(1)
worst = 0.0
for _ in range(20):
    m, k, n = random.randint(1, 200, 3)
    a, b = random.randn(m, k), random.randn(k, n)
    for kind, bound in (("f4", 1e-5), ("f8", 1e-13)):
        exact = (a.astype("f16") @ b.astype("f16")).astype("f8")
        worst = max(worst, np.abs(a.astype(kind) @ b.astype(kind) - exact).max() / np.abs(exact).max() / bound)
print(worst)
"""


@pytest.mark.parametrize("core", ["", "Haswell"])
def test_matrix_products_are_right(in_runtime, core: str) -> None:
    """OpenBLAS against extended precision, for its own choice of kernel and for the one that is set for AVX2."""
    chosen = {"OPENBLAS_CORETYPE": core} if core else {}
    assert float(in_runtime(["-c", PRODUCTS], **chosen).stdout) < 1


def test_load_image_is_repaired(in_runtime, tmp_path: Path) -> None:
    """caffe.io.load_image reads colour and gray through Pillow, in [0, 1]."""
    program = """
import sys, numpy as np, caffe.io
from PIL import Image
Image.fromarray(np.array([[[255, 0, 0], [0, 255, 0]]], "u1")).save("x.png")
colour, gray = caffe.io.load_image("x.png"), caffe.io.load_image("x.png", color=False)
assert colour.shape == (1, 2, 3) and gray.shape == (1, 2, 1), (colour.shape, gray.shape)
assert np.array_equal(colour[0], [[1, 0, 0], [0, 1, 0]])
assert np.allclose(gray[0, :, 0], [0.2125, 0.7154])
assert "skimage" not in sys.modules and "scipy" not in sys.modules
"""
    in_runtime(["-c", program], cwd=tmp_path)
