"""A folder of images and a list as keys and serialized Datum, as Caffe's convert_imageset makes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

import cv2
import numpy as np

from caffe_on_grid.data import datum
from caffe_on_grid.data.api import Array
from caffe_on_grid.errors import ConfigError, DataError, UsageError
from caffe_on_grid.proto import schema

Item = tuple[str, bytes]
Line = tuple[str, int]
"""Name of an image below the root, and its label."""

JPEG_END = b"\xff\xd9"


@dataclass(frozen=True)
class Options:
    """What convert_imageset's flags say. Sizes in pixels, 0: as the file is."""

    gray: bool = False
    height: int = 0
    width: int = 0
    encoded: bool = False
    encode_type: str = ""
    check_size: bool = False

    def __post_init__(self) -> None:
        if (self.height > 0) != (self.width > 0):
            raise UsageError("--resize-height and --resize-width go together; give both or neither")

    @property
    def resized(self) -> bool:
        """Whether images get another size."""
        return self.height > 0


def read_list(path: Path) -> list[Line]:
    """Lines `name label` (the label after the last blank; names may hold blanks)."""
    if not path.is_file():
        raise ConfigError(f"no such file: {path}")
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return [_line(line, f"{path}:{number}") for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _line(line: str, where: str) -> Line:
    found = re.fullmatch(r"(.+) ([+-]?\d+)\s*", line)
    if not found:
        raise DataError(f"{where}: expected `name label` with a whole number as the label, found {line!r}")
    label = int(found[2])
    if not -(1 << 31) <= label < 1 << 31:
        raise DataError(f"{where}: label {label} has more than the 32 bits of a Datum's")
    return found[1], label


def shuffled(lines: Sequence[Line], seed: int) -> list[Line]:
    """The lines in a seeded random order (numpy's legacy generator, the same in every version)."""
    return [lines[index] for index in np.random.RandomState(seed).permutation(len(lines))]


def items(root: str, lines: Sequence[Line], options: Options) -> Iterator[Item]:
    """Records of the images that can be read; the others are named on stderr, as convert_imageset does.

    Keys are `%08d_<name>`. Raises DataError for an image of another size under `check_size`.
    """
    if not Path(root).is_dir():
        raise ConfigError(f"no such folder: {root}")
    size: Optional[int] = None
    for number, (name, label) in enumerate(lines):
        made = _datum(Path(root) / name.lstrip("/"), label, options)
        if made is None:
            print(f"skipped: {name} is missing or no image", file=sys.stderr)
            continue
        size = len(made.data) if size is None else size
        if options.check_size and len(made.data) != size:
            raise DataError(
                f"{name} makes {len(made.data)} bytes, the first image {size}; resize, or drop --check-size"
            )
        yield f"{number:08d}_{name}", made.SerializeToString()


def _datum(path: Path, label: int, options: Options) -> Any:
    """The Datum of one image file, or None where it cannot be read."""
    found = _read(path, options)
    if found is None:
        return None
    data, image = found
    if options.encoded:
        return schema.Datum(data=_encoded(path, data, image, options), label=label, encoded=True)
    made = datum.raw(image[None] if image.ndim == 2 else image.transpose(2, 0, 1), label)
    made.encoded = False  # written out, as Caffe writes it
    return made


def _read(path: Path, options: Options) -> Optional[tuple[bytes, Array]]:
    """The file, and [H, W] or [H, W, 3] (BGR) uint8.

    A JPEG that is cut short gets its end mark: so OpenCV takes from memory, now and in training, what Caffe's tool
    takes from a file (what is missing is gray).
    """
    if not path.is_file():
        return None
    flag = cv2.IMREAD_GRAYSCALE if options.gray else cv2.IMREAD_COLOR
    whole = path.read_bytes()
    for data in (whole, whole + JPEG_END):
        image = cv2.imdecode(np.frombuffer(data, np.uint8), flag) if data else None
        if image is not None:
            return data, np.asarray(cv2.resize(image, (options.width, options.height)) if options.resized else image)
    return None


def _encoded(path: Path, data: bytes, image: Array, options: Options) -> bytes:
    """The file itself where it is of the wanted kind and size, else the image encoded anew."""
    suffix = path.suffix[1:].lower()
    kind = (options.encode_type or suffix).lower()
    if not options.resized and ("jpg" if suffix == "jpeg" else suffix) == ("jpg" if kind == "jpeg" else kind):
        return data
    try:
        return bytes(cv2.imencode(f".{kind}", image)[1])
    except cv2.error:
        raise ConfigError(f"{path}: OpenCV cannot encode images as {kind!r}; try --encode-type png") from None
