"""Our converters against Caffe's own, record by record and byte by byte."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import cv2
import lmdb
import numpy as np
import pytest
import records

pytestmark = pytest.mark.runtime


@pytest.fixture(scope="module")
def caffes(runtime, runtime_env):
    """Runs one of Caffe's tools."""

    def run(tool: str, *args: object) -> None:
        command = [str(runtime / "bin" / tool), *map(str, args)]
        done = subprocess.run(command, env=runtime_env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    return run


@pytest.fixture(scope="module")
def ours(in_runtime):
    """Runs our converter in the runtime's Python."""
    return lambda *args: in_runtime(["-m", "caffe_on_grid.data.convert", *map(str, args)])


def content(path: Path) -> list[tuple[bytes, bytes]]:
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return list(transaction.cursor())


def same(left: Path, right: Path, count: int) -> bool:
    one, other = content(left), content(right)
    return len(one) == len(other) == count and one == other


@pytest.fixture(scope="module")
def listed(tmp_path_factory) -> tuple[str, Path]:
    """A folder of images of several kinds, and a list that also names a missing one."""
    folder = tmp_path_factory.mktemp("images")
    (folder / "img" / "sub").mkdir(parents=True)
    names = ["a.png", "b.jpg", "c.JPEG", "sub/d e.png", "sub/f.jpg", "g.bmp"]
    for seed, name in enumerate(names):
        image = records.pixels(seed, 1 if name == "a.png" else 3, 21, 34).transpose(1, 2, 0)
        assert cv2.imwrite(str(folder / "img" / name), np.ascontiguousarray(image))
    names.insert(2, "missing.png")
    (folder / "list").write_text("".join(f"{name} {5 * label - 4}\n" for label, name in enumerate(names)))
    return f"{folder / 'img'}/", folder / "list"


@pytest.mark.parametrize("options", [
    [],
    ["--gray"],
    ["--resize_height=17", "--resize_width=40", "--check_size"],
    ["--encoded"],
    ["--encoded", "--gray"],
    ["--encode_type=png"],
    ["--encode_type=jpg", "--resize_height=9", "--resize_width=9"],
])  # fmt: skip
def test_images(caffes, ours, listed, tmp_path, options):
    root, lines = listed
    caffes("convert_imageset", *options, root, lines, tmp_path / "caffe")
    ours("images", *(option.replace("_", "-") for option in options), root, lines, tmp_path / "ours")
    assert same(tmp_path / "caffe", tmp_path / "ours", 6)


def test_mnist(caffes, ours, tmp_path):
    random = np.random.RandomState(0)
    images, labels = random.randint(0, 256, (1100, 28, 28)), random.randint(0, 10, 1100)
    (tmp_path / "i").write_bytes(struct.pack(">4I", 2051, 1100, 28, 28) + images.astype(np.uint8).tobytes())
    (tmp_path / "l").write_bytes(struct.pack(">2I", 2049, 1100) + labels.astype(np.uint8).tobytes())
    caffes("convert_mnist_data", "--backend=lmdb", tmp_path / "i", tmp_path / "l", tmp_path / "caffe")
    ours("mnist", tmp_path / "i", tmp_path / "l", tmp_path / "ours")
    assert same(tmp_path / "caffe", tmp_path / "ours", 1100)


def test_cifar10(caffes, ours, tmp_path):
    rows = np.random.RandomState(0).randint(0, 256, (10000, 3073)).astype(np.uint8)
    rows[:, 0] %= 10
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}.bin").symlink_to("test_batch.bin")
    caffes("convert_cifar_data", tmp_path, tmp_path, "lmdb")
    train = [tmp_path / f"data_batch_{number}.bin" for number in range(1, 6)]
    ours("cifar10", *train, tmp_path / "train")
    ours("cifar10", tmp_path / "test_batch.bin", tmp_path / "test")
    assert same(tmp_path / "cifar10_test_lmdb", tmp_path / "test", 10000)
    assert same(tmp_path / "cifar10_train_lmdb", tmp_path / "train", 50000)
