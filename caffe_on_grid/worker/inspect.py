"""What a file or folder of Caffe's holds: `python -m caffe_on_grid.worker.inspect PATH`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError, UsageError
from caffe_on_grid.spec import program
from caffe_on_grid.worker import child, inspect_files, inspect_net, offline
from caffe_on_grid.worker.timing import ENGINES, shape

Found = dict[str, Any]
Describe = Callable[[Path, argparse.Namespace], Found]


def _in_child(describe: Describe) -> Describe:
    return lambda path, args: child.run(lambda: describe(path, args), str(path))


DESCRIBE: dict[str, Describe] = {
    "net": _in_child(inspect_net.net),
    "solver": _in_child(inspect_net.solver),
    "model": lambda path, args: inspect_files.model(path),
    "model_hdf5": lambda path, args: inspect_files.model_hdf5(path),
    "state": lambda path, args: inspect_files.state(path),
    "mean": lambda path, args: inspect_files.mean(path),
    "lmdb": lambda path, args: inspect_files.records(path, args.records),
}

LINES: dict[str, Callable[[Found], Iterator[str]]] = {
    "net": inspect_net.net_lines,
    "solver": inspect_net.solver_lines,
    "model": inspect_files.model_lines,
    "state": inspect_files.state_lines,
    "mean": inspect_files.mean_lines,
    "lmdb": inspect_files.records_lines,
}

SUFFIXES: tuple[tuple[str, str], ...] = (
    (".caffemodel.h5", "model_hdf5"),
    (".caffemodel", "model"),
    (".solverstate", "state"),
    (".binaryproto", "mean"),
)


def kind_of(path: Path) -> str:
    """What `path` is, by its name and, for a prototxt, by its fields; raises ConfigError where it is nothing known."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder")
    if path.is_dir():
        return "lmdb"
    known = next((kind for suffix, kind in SUFFIXES if path.name.endswith(suffix)), None)
    if known is None and path.name.endswith(".solverstate.h5"):
        raise ConfigError(f"{path}: HDF5 snapshots cannot be shown")
    return known or inspect_net.kind_of(path)


def parser() -> argparse.ArgumentParser:
    """The program's words."""
    words = program.Parser(prog="caffe-on-grid inspect", description="Show what a file or folder holds.")
    words.add_argument("path", type=Path, help="prototxt (net, solver), .caffemodel, .solverstate, .binaryproto, LMDB")
    words.add_argument("--json", action="store_true", help="one JSON object")
    words.add_argument("-phase", "--phase", choices=("TRAIN", "TEST"), default="TRAIN", help="of a net")
    offline.state_words(words)
    words.add_argument(
        "-engine", "--engine", choices=ENGINES, default="auto", help="let it build a net too, and compare"
    )
    words.add_argument("-shape", "--shape", help="C,H,W of a net's records where nothing else tells")
    words.add_argument(
        "--ignore-unknown-fields", action="store_true", help="leave out fields that Caffe lacks, list them"
    )
    words.add_argument("--svg", metavar="OUT.svg", help="draw a net instead (caffe-on-grid does, with igraph)")
    words.add_argument("-records", "--records", type=int, default=5, help="records of an LMDB to show")
    return words


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Print what is there; the exit code is the error's."""
    args = parser().parse_args(argv)
    return program.end(lambda: _show(args))


def _show(args: argparse.Namespace) -> None:
    if args.svg:
        raise UsageError("--svg: a picture is drawn by the command caffe-on-grid inspect, not by this program")
    args.shape = shape(args.shape)
    found = DESCRIBE[kind_of(args.path)](args.path, args)
    print(json.dumps(found) if args.json else "\n".join(LINES[found["kind"]](found)))


if __name__ == "__main__":
    sys.exit(main())
