"""Writes LMDBs of Datum: `python -m caffe_on_grid.data.convert mnist|cifar10|images …`.

Records and keys are those of Caffe's convert_mnist_data, convert_cifar_data and convert_imageset. The database is made
in a folder beside OUT and renamed when it is complete.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.data import images, numbers
from caffe_on_grid.data.lmdb_source import LmdbWriter
from caffe_on_grid.errors import SIGNALS, ConfigError, DataError, GridError
from caffe_on_grid.spec import program
from caffe_on_grid.storage import local

Item = tuple[str, bytes]
"""Key and serialized Datum."""
PROGRESS_RECORDS = 10_000


def write(items: Iterable[Item], out: Path, overwrite: bool) -> int:
    """Make the LMDB `out` of `items` and return their number; nothing is left of it unless all could be written."""
    if out.exists() and not overwrite:
        raise ConfigError(f"{out} exists already; give another name or --overwrite")
    aside = out.with_name(f"{out.name}.partial-{os.getpid()}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        count = _fill(items, aside)
        _replace(aside, out)
    except OSError as error:
        raise local.translate(error, str(out)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return count


def _fill(items: Iterable[Item], folder: Path) -> int:
    writer = LmdbWriter(str(folder))
    count = 0
    for key, value in items:
        if _ENDED:
            raise _ENDED[0]
        writer.put(os.fsencode(key), value)
        count += 1
        if count % PROGRESS_RECORDS == 0:
            print(f"{count} records", file=sys.stderr, flush=True)
    if not count:
        raise DataError("no records were found, so none are written")
    writer.close()
    (folder / "lock.mdb").unlink()
    return count


def _replace(aside: Path, out: Path) -> None:
    """Give the complete folder its name; what had it before goes only then."""
    if not out.exists():
        aside.rename(out)
        return
    old = out.with_name(f"{out.name}.old-{os.getpid()}")
    out.rename(old)
    aside.rename(out)
    shutil.rmtree(old) if old.is_dir() else old.unlink()


def _mnist(args: argparse.Namespace) -> Iterator[Item]:
    return numbers.mnist(Path(args.images), Path(args.labels))


def _cifar10(args: argparse.Namespace) -> Iterator[Item]:
    return numbers.cifar10([Path(batch) for batch in args.batches])


def _images(args: argparse.Namespace) -> Iterator[Item]:
    options = images.Options(
        gray=args.gray,
        height=args.resize_height,
        width=args.resize_width,
        encoded=args.encoded or bool(args.encode_type),
        encode_type=args.encode_type,
        check_size=args.check_size,
    )
    lines = images.read_list(Path(args.list))
    return images.items(args.root, images.shuffled(lines, args.seed) if args.shuffle else lines, options)


def _whole(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError(f"{value} is negative")
    return value


def _command(
    commands: Any, name: str, items: Any, about: str, *positionals: tuple[str, str]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=about, description=about)
    for positional, what in positionals:
        parser.add_argument(positional, nargs="+" if positional == "batches" else None, help=what)
    parser.add_argument("out", help="folder of the LMDB to make")
    parser.add_argument("--overwrite", action="store_true", help="replace OUT once the new one is complete")
    parser.set_defaults(items=items)
    return parser


def parser() -> argparse.ArgumentParser:
    """The command line of this program."""
    top = program.Parser(prog="caffe-on-grid convert", description="Make an LMDB of Datum.")
    commands = top.add_subparsers(dest="kind", required=True, metavar="KIND")
    idx = ("images", "idx file of images, .gz or not"), ("labels", "idx file of labels, .gz or not")
    _command(commands, "mnist", _mnist, "MNIST's idx files", *idx)
    _command(commands, "cifar10", _cifar10, "CIFAR-10's binary batches", ("batches", "data_batch_N.bin, in order"))
    about = ("root", "folder that the names in LIST start from"), ("list", "text file of lines `name label`")
    listed = _command(commands, "images", _images, "A folder of images and a list", *about)
    flags = {
        "--gray": "make one channel",
        "--shuffle": "shuffle the list",
        "--encoded": "store image files instead of pixels",
        "--check-size": "stop at an image of another size than the first",
    }
    for flag, what in flags.items():
        listed.add_argument(flag, action="store_true", help=what)
    listed.add_argument("--resize-height", type=_whole, default=0, help="pixels; both or neither")
    listed.add_argument("--resize-width", type=_whole, default=0, help="pixels; both or neither")
    listed.add_argument("--encode-type", default="", help="png, jpg, …: what to store; implies --encoded")
    listed.add_argument("--seed", type=_whole, default=0, help="of --shuffle")
    return top


_ENDED: list[GridError] = []
"""What a signal asks for: looked at between two records, since libraries drop what is raised while they run."""


def _on_signal(number: int, _: object) -> None:
    kind = SIGNALS[number]
    _ENDED.append(kind(f"{kind.__name__.lower()}; nothing was written"))
    if len(_ENDED) > 1:
        raise _ENDED[0]


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the program; returns the exit code of errors.py."""
    args = parser().parse_args(argv)
    return program.end(lambda: _convert(args))


def _convert(args: argparse.Namespace) -> None:
    count = write(args.items(args), Path(args.out), args.overwrite)
    print(f"{args.out}: {count} records", file=sys.stderr)


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _on_signal)
    sys.exit(main())
