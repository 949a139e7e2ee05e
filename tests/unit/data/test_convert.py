from __future__ import annotations

import gzip
import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
import records

from caffe_on_grid.data import convert, lmdb_source

IMAGES = np.random.RandomState(0).randint(0, 256, (25, 6, 5)).astype(np.uint8)
LABELS = np.arange(25, dtype=np.uint8) % 10


def idx(path: Path, magic: int, array: np.ndarray, pack: bool = False) -> str:
    data = struct.pack(f">{1 + array.ndim}I", magic, *array.shape) + array.tobytes()
    path.write_bytes(gzip.compress(data) if pack else data)
    return str(path)


def pair(folder: Path, pack: bool = False) -> list[str]:
    return [idx(folder / "images", 2051, IMAGES, pack), idx(folder / "labels", 2049, LABELS, pack)]


def folder_of_images(folder: Path) -> tuple[str, str]:
    (folder / "img").mkdir()
    for number in range(4):
        pixels = records.pixels(number, 3, 8 + 4 * (number == 3), 8).transpose(1, 2, 0)
        cv2.imwrite(str(folder / "img" / f"no {number}.png"), pixels)
    (folder / "list").write_text("".join(f"no {number}.png {number}\n" for number in range(4)))
    return str(folder / "img"), str(folder / "list")


def everything(path: Path) -> list[tuple[str, int, tuple[int, ...]]]:
    source = lmdb_source.open(str(path))
    found = [source.read(index) for index in range(len(source))]
    source.close()
    return [(record.key, record.label, record.pixels.shape) for record in found]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "made" / "db"


def only_out(out: Path) -> bool:
    """Whether nothing half-made lies beside the output."""
    return not out.parent.exists() or {entry.name for entry in out.parent.iterdir()} <= {"db"}


@pytest.mark.parametrize("pack", [False, True])
def test_mnist(tmp_path, out, pack):
    assert convert.main(["mnist", *pair(tmp_path, pack), str(out)]) == 0
    source = lmdb_source.open(str(out))
    assert [(source.key(i), source.read(i).label) for i in (0, 24)] == [("00000000", 0), ("00000024", 4)]
    assert np.array_equal([source.read(i).pixels[0] for i in range(25)], IMAGES)
    source.close()
    assert only_out(out)


def test_cifar10(tmp_path, out):
    rows = np.random.RandomState(0).randint(0, 256, (6, 3073)).astype(np.uint8)
    for number in range(2):
        (tmp_path / f"b{number}").write_bytes(rows[3 * number : 3 * number + 3].tobytes())
    assert convert.main(["cifar10", str(tmp_path / "b0"), str(tmp_path / "b1"), str(out)]) == 0
    source = lmdb_source.open(str(out))
    assert [source.key(i) for i in range(6)] == [f"{i:05d}" for i in range(6)]
    assert np.array_equal([source.read(i).pixels.ravel() for i in range(6)], rows[:, 1:])
    assert [source.read(i).label for i in range(6)] == rows[:, 0].tolist()
    source.close()


def test_images_keep_the_line_number_in_their_keys(tmp_path, out, capsys):
    root, lines = folder_of_images(tmp_path)
    Path(root, "no 1.png").write_bytes(b"no image")
    assert convert.main(["images", root, lines, str(out)]) == 0
    assert everything(out) == [
        ("00000000_no 0.png", 0, (3, 8, 8)),
        ("00000002_no 2.png", 2, (3, 8, 8)),
        ("00000003_no 3.png", 3, (3, 12, 8)),
    ]
    assert "skipped: no 1.png" in capsys.readouterr().err


@pytest.mark.parametrize("flag", [[], ["--encoded"], ["--encode-type", "png"]])
def test_a_jpeg_that_is_cut_short_is_taken_as_caffe_takes_it(tmp_path, out, flag):
    """convert_imageset reads files by imread, which completes them; imdecode from memory does not."""
    pixels = records.pixels(0, 3, 64, 48).transpose(1, 2, 0)
    (tmp_path / "cut.jpg").write_bytes(cv2.imencode(".jpg", pixels)[1].tobytes()[:2000])
    (tmp_path / "list").write_text("cut.jpg 3\n")
    assert convert.main(["images", *flag, str(tmp_path), str(tmp_path / "list"), str(out)]) == 0
    source = lmdb_source.open(str(out))
    assert np.array_equal(source.read(0).pixels, cv2.imread(str(tmp_path / "cut.jpg")).transpose(2, 0, 1))
    source.close()


def test_shuffle_is_seeded(tmp_path, out):
    root, lines = folder_of_images(tmp_path)
    orders = []
    for seed in ("1", "1", "2"):
        assert convert.main(["images", "--shuffle", "--seed", seed, "--overwrite", root, lines, str(out)]) == 0
        orders.append([label for _, label, _ in everything(out)])
    assert orders[0] == orders[1] != orders[2]
    assert [sorted(order) for order in orders] == [[0, 1, 2, 3]] * 3


def test_gray_resized_encoded(tmp_path, out):
    root, lines = folder_of_images(tmp_path)
    flags = ["--gray", "--resize-height", "5", "--resize-width", "7", "--encode-type", "png"]
    assert convert.main(["images", *flags, root, lines, str(out)]) == 0
    assert [shape for _, _, shape in everything(out)] == [(1, 5, 7)] * 4


def bad_list(tmp_path: Path, out: Path) -> list[str]:
    root, _ = folder_of_images(tmp_path)
    (tmp_path / "bad").write_text("no 0.png 1\nno 1.png one\n")
    return ["images", root, str(tmp_path / "bad"), str(out)]


def large_label(tmp_path: Path, out: Path) -> list[str]:
    root, _ = folder_of_images(tmp_path)
    (tmp_path / "large").write_text("no 0.png -2147483648\nno 1.png 2147483648\n")
    return ["images", root, str(tmp_path / "large"), str(out)]


def folder_of_batches(tmp_path: Path, out: Path) -> list[str]:
    return ["cifar10", str(tmp_path), str(out)]


def sizes_differ(tmp_path: Path, out: Path) -> list[str]:
    return ["images", "--check-size", *folder_of_images(tmp_path), str(out)]


def one_resize(tmp_path: Path, out: Path) -> list[str]:
    return ["images", "--resize-width", "4", *folder_of_images(tmp_path), str(out)]


def odd_encoding(tmp_path: Path, out: Path) -> list[str]:
    return ["images", "--encode-type", "xyz", *folder_of_images(tmp_path), str(out)]


def swapped(tmp_path: Path, out: Path) -> list[str]:
    return ["mnist", *reversed(pair(tmp_path)), str(out)]


def cut_idx(tmp_path: Path, out: Path) -> list[str]:
    images, labels = pair(tmp_path)
    os.truncate(images, 400)
    return ["mnist", images, labels, str(out)]


def cut_gzip(tmp_path: Path, out: Path) -> list[str]:
    images, labels = pair(tmp_path, pack=True)
    os.truncate(images, 400)
    return ["mnist", images, labels, str(out)]


def fewer_labels(tmp_path: Path, out: Path) -> list[str]:
    return ["mnist", pair(tmp_path)[0], idx(tmp_path / "few", 2049, LABELS[:7]), str(out)]


def cut_cifar(tmp_path: Path, out: Path) -> list[str]:
    (tmp_path / "b").write_bytes(bytes(4000))
    return ["cifar10", str(tmp_path / "b"), str(out)]


def missing(tmp_path: Path, out: Path) -> list[str]:
    return ["cifar10", str(tmp_path / "absent"), str(out)]


def nothing(tmp_path: Path, out: Path) -> list[str]:
    (tmp_path / "empty").write_bytes(b"")
    return ["cifar10", str(tmp_path / "empty"), str(out)]


def out_is_below_a_file(tmp_path: Path, out: Path) -> list[str]:
    out.parent.write_text("a file")
    return ["mnist", *pair(tmp_path), str(out)]


@pytest.mark.parametrize(("make", "says"), [
    (bad_list, "bad:2: expected `name label`"),
    (large_label, "large:2: label 2147483648 has more than the 32 bits"),
    (folder_of_batches, "is a folder: name the files in it"),
    (sizes_differ, "no 3.png makes 288 bytes, the first image 192"),
    (one_resize, "go together"),
    (odd_encoding, "cannot encode images as 'xyz'"),
    (swapped, "starts with 2049 instead of 2051"),
    (cut_idx, "ends too early"),
    (cut_gzip, "cannot be unpacked"),
    (fewer_labels, "has 25 images, but"),
    (cut_cifar, "ends too early: 2146 bytes"),
    (missing, "no such file"),
    (nothing, "no records"),
    (out_is_below_a_file, "a file stands where a folder is wanted"),
])  # fmt: skip
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, out, capsys, make, says):
    assert convert.main(make(tmp_path, out)) == (2 if make is one_resize else 3)
    errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("skipped")]
    assert len(errors) == 1
    assert says in errors[0]
    assert not out.exists() or out.parent.is_file()
    assert out.parent.is_file() or only_out(out)


def test_an_existing_output_is_refused_unless_overwritten(tmp_path, out, capsys):
    command = ["mnist", *pair(tmp_path), str(out)]
    assert [convert.main(command), convert.main(command)] == [0, 3]
    assert "--overwrite" in capsys.readouterr().err
    os.truncate(tmp_path / "images", 400)
    assert convert.main([*command, "--overwrite"]) == 3
    assert len(everything(out)) == 25, "the old output stays where the new one could not be made"
    pair(tmp_path)
    assert convert.main([*command, "--overwrite"]) == 0
    assert only_out(out)


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted(tmp_path, out, root, how, code):
    folder, lines = folder_of_images(tmp_path)
    Path(lines).write_text("no 0.png 0\n" * 100_000)
    program = subprocess.Popen(
        [sys.executable, "-m", "caffe_on_grid.data.convert", "images", folder, lines, str(out)],
        env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not any(out.parent.glob("db.partial-*/data.mdb")):
        time.sleep(0.01)
    program.send_signal(how)
    said = program.communicate()[1]
    assert program.returncode == code
    assert "nothing was written" in said
    assert "Traceback" not in said
    assert only_out(out)
