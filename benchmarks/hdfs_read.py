"""Reading a large file from HDFS: our staging by both doors against the raw reads of hdfs-native and of hdfs.

On a grid (`make grid`; without one nothing is read): prints one JSON object with MB/s (medians over rounds in which all
take turns) and the ratios that the claims are about.
`python benchmarks/hdfs_read.py [--uri hdfs://HOST:PORT] [--web http://HOST:PORT] [--mib N]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import hdfs as hdfs_package
import hdfs_native
import requests

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from caffe_on_grid.storage import hdfs, stage
from caffe_on_grid.storage.remote import RemoteStorage

FOLDER = "/benchmarks/hdfs_read"


def raw(uri: str) -> Callable[[], None]:
    """hdfs-native's own stream, every byte received and dropped."""

    def read() -> None:
        client = hdfs_native.Client(uri)
        reader = client.read(f"{FOLDER}/data.mdb")
        assert sum(len(piece) for piece in reader.read_range_stream(0, len(reader))) == len(reader)

    return read


def raw_to_disk(uri: str, folder: Path) -> Callable[[], None]:
    """The same, written to a local file as it comes."""

    def read() -> None:
        reader = hdfs_native.Client(uri).read(f"{FOLDER}/data.mdb")
        with (folder / "raw").open("wb", buffering=0) as out:
            for piece in reader.read_range_stream(0, len(reader)):
                out.write(piece)

    return read


def staged(uri: str, folder: Path) -> Callable[[], None]:
    """What a node does: `stage`, with its checksum, into an empty cache."""

    def read() -> None:
        stage.stage(f"{uri}{FOLDER}", folder / "cache")

    return read


def package(web: str) -> Callable[[], None]:
    """The `hdfs` package's stream over WebHDFS."""

    def read() -> None:
        with hdfs_package.InsecureClient(web).read(f"{FOLDER}/data.mdb", chunk_size=1 << 20) as pieces:
            for _ in pieces:
                pass

    return read


def measure(act: Callable[[], None], folder: Path, mib: int) -> float:
    """MB/s of one read into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    begin = time.perf_counter()
    act()
    return mib * 1.048576 / (time.perf_counter() - begin)


def contenders(uri: str, web: str, folder: Path) -> dict[str, Callable[[], None]]:
    """Everyone who reads."""
    return {
        "hdfs_native_raw": raw(uri),
        "hdfs_native_to_disk": raw_to_disk(uri, folder),
        "stage_hdfs": staged(uri, folder),
        "stage_webhdfs": staged(f"webhdfs://{web.split('//')[1]}", folder),
        "hdfs_package_raw": package(web),
    }


def answers(web: str) -> bool:
    """Whether a NameNode is there."""
    try:
        return bool(hdfs_package.InsecureClient(web, timeout=5).status("/"))
    except requests.RequestException:
        return False


def main() -> None:
    """Write the file, let all read it in turns, print the figures, remove it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--uri", default="hdfs://127.0.0.1:19000")
    parser.add_argument("--web", default="http://127.0.0.1:19870")
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    if not answers(asked.web):
        print(json.dumps({"benchmark": "hdfs_read", "not_run": f"no HDFS at {asked.web}: `make grid` starts one"}))
        return
    store = RemoteStorage(hdfs.open_client)
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as place:
        source, folder = Path(place) / "source", Path(place) / "read"
        with source.open("wb") as out:
            for _ in range(asked.mib):
                out.write(os.urandom(1 << 20))
        store.publish(source, f"{asked.uri}{FOLDER}/data.mdb")
        source.unlink()
        acts = contenders(asked.uri, asked.web, folder)
        seen: dict[str, list[float]] = {name: [] for name in acts}
        for _ in range(asked.rounds):
            for name, act in acts.items():
                seen[name].append(measure(act, folder, asked.mib))
    store.remove(f"{asked.uri}{FOLDER}")
    medians = {name: round(statistics.median(values), 1) for name, values in seen.items()}
    ratios = {
        "stage_over_raw": round(medians["stage_hdfs"] / medians["hdfs_native_raw"], 3),
        "stage_over_raw_to_disk": round(medians["stage_hdfs"] / medians["hdfs_native_to_disk"], 3),
        "stage_webhdfs_over_package_raw": round(medians["stage_webhdfs"] / medians["hdfs_package_raw"], 3),
    }
    machine = {"cpus": os.cpu_count(), "load_1min": round(os.getloadavg()[0], 1)}
    figures = {"mib": asked.mib, "rounds": asked.rounds, **machine, "mb_per_s": medians, **ratios}
    print(json.dumps({"benchmark": "hdfs_read", **figures}))


if __name__ == "__main__":
    main()
