"""What is fuzzed: every reader of files that users bring, with valid files of its kind."""

from __future__ import annotations

import atexit
import gzip
import shutil
import struct
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import mutations
import numpy as np

from caffe_on_grid.data import datum, numbers, transform
from caffe_on_grid.errors import GridError
from caffe_on_grid.proto import graph, lint, references, schema, shapes, text, upgrade, weights
from caffe_on_grid.storage import solverstate
from caffe_on_grid.submit import upgrade as upgrades
from caffe_on_grid.worker import inspect_files

ROOT = Path(__file__).resolve().parents[2]
SCRATCH = Path(tempfile.mkdtemp(prefix="fuzz-"))
atexit.register(shutil.rmtree, SCRATCH, True)
NET = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: [2, 3] } } }\n'


class Target(NamedTuple):
    """A reader, valid inputs for it, and how they are changed."""

    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    changes: Sequence[mutations.Change]


def each(*readers: Callable[[bytes], object]) -> Callable[[bytes], None]:
    """All readers of one kind of file, whatever the others say; the first refusal is raised in the end."""

    def read(data: bytes) -> None:
        refusals = []
        for reader in readers:
            try:
                reader(data)
            except GridError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]

    return read


def shown(describe: Callable[[Path], Any], name: str) -> Callable[[bytes], object]:
    """`inspect` of a file."""

    def read(data: bytes) -> object:
        path = SCRATCH / name
        path.write_bytes(data)
        return describe(path)

    return read


def files(*patterns: str) -> list[bytes]:
    """Contents of the repository's files."""
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def decoded(data: bytes) -> str:
    """A text as the gateway reads it."""
    return data.decode("utf-8", "surrogateescape")


def net(data: bytes) -> None:
    """A net: parsed, upgraded, filtered, its shapes worked out as far as they are known."""
    source = decoded(data)
    message = upgrade.upgrade_net(text.parse(schema.NetParameter, source, "net"))
    for phase in (schema.TRAIN, schema.TEST):
        filtered = graph.filter_net(message, schema.NetState(phase=phase))
        graph.data_layers(filtered)
        shapes.check(graph.SolverNets(filtered, ()))
    again = text.parse(schema.NetParameter, text.render(message), "again")
    assert again.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


def names(data: bytes) -> None:
    """What a prototxt names, its kind, and what is left without unknown fields."""
    source = decoded(data)
    for kind in ("net", "solver"):
        references.references(source, kind)
    cls = schema.NetParameter if references.kind_of(source) == "net" else schema.SolverParameter
    kept, _ = text.without_unknown(cls, source, "given")
    text.parse(cls, kept, "kept")
    references.rewrite(source, {"x": "y"})


def solver(data: bytes) -> None:
    """A solver: parsed, upgraded, with its nets, warned of."""
    message = upgrade.upgrade_solver(text.parse(schema.SolverParameter, decoded(data), "solver"))
    lint.warnings(message, graph.solver_nets(message, lambda _name: NET))


def model(data: bytes) -> None:
    """A .caffemodel, with its numbers."""
    for layer in weights.read_model(data).layer:
        for blob in layer.blobs:
            shape, values = weights.blob_array(blob)
            values.reshape(shape)


def state(data: bytes) -> None:
    """A .solverstate, with its history."""
    for blob in weights.read_state(data).history:
        shape, values = weights.blob_array(blob)
        values.reshape(shape)


def record(data: bytes) -> None:
    """A Datum, and the transformation of it."""
    pixels = datum.Decoder().record("key", data).pixels
    message = schema.TransformationParameter(crop_size=2, mean_value=[1])
    plan = transform.plan(message, lambda _name: b"", "TRAIN")
    out = np.empty(transform.top_shape(pixels.shape, plan), np.float32)
    transform.apply(pixels, plan, "TRAIN", transform.draws(0, 0), out)


def mnist(data: bytes) -> None:
    """A pair of idx files; the labels are the last 11 bytes."""
    paths = [SCRATCH / "images", SCRATCH / "labels"]
    for path, content in zip(paths, (data[:-11], data[-11:])):
        path.write_bytes(content)
    sum(1 for _ in numbers.mnist(*paths))


def mnist_packed(data: bytes) -> None:
    """The same images packed; the labels are good."""
    (SCRATCH / "images.gz").write_bytes(data)
    (SCRATCH / "labels").write_bytes(LABELS)
    sum(1 for _ in numbers.mnist(SCRATCH / "images.gz", SCRATCH / "labels"))


def cifar(data: bytes) -> None:
    """A batch of CIFAR-10."""
    (SCRATCH / "batch").write_bytes(data)
    sum(1 for _ in numbers.cifar10([SCRATCH / "batch"]))


def _old(name: str) -> Any:
    source = (ROOT / "tests" / "data" / "proto" / f"{name}.prototxt").read_text()
    return text.parse(schema.NetParameter, source, name)


def _models() -> list[bytes]:
    rng = np.random.RandomState(0)
    v0, v1, now = _old("v0"), _old("v1"), upgrade.upgrade_net(_old("v1"))
    for layer in (v0.layers[4].layer, v1.layers[3], now.layer[3]):
        layer.blobs.add(num=2, channels=1, height=3, width=3).data.extend(rng.rand(18))
        layer.blobs.add().double_data.extend(rng.rand(4))
        layer.blobs[1].shape.dim.append(4)
    scalar = schema.NetParameter(layer=[schema.LayerParameter(name="s", type="Scale")])
    scalar.layer[0].blobs.add().data.append(1)
    return [message.SerializeToString() for message in (v0, v1, now, scalar)]


def _states() -> list[bytes]:
    found = schema.SolverState(iter=12, learned_net="x_iter_12.caffemodel", current_step=2)
    for size in (6, 1):
        found.history.add(data=range(size)).shape.dim.extend([size, 1])
    return [found.SerializeToString(), schema.SolverState(iter=3).SerializeToString()]


def _means() -> list[bytes]:
    old = schema.BlobProto(num=1, channels=3, height=2, width=2, data=range(12))
    new = schema.BlobProto(double_data=range(12))
    new.shape.dim.extend([1, 3, 2, 2])
    negative, none = schema.BlobProto(data=range(12)), schema.BlobProto(data=[1])
    negative.shape.dim.extend([-1, -3, 2, 2])
    none.shape.SetInParent()
    return [message.SerializeToString() for message in (old, new, negative, none)]


def _records() -> list[bytes]:
    pixels = (np.arange(3 * 5 * 6) % 251).astype(np.uint8).reshape(3, 5, 6)
    image = pixels.transpose(1, 2, 0)
    kinds = {".png": image, ".jpg": image, ".bmp": image, ".tiff": image, ".webp": image, ".pgm": image[:, :, 0]}
    packed = [cv2.imencode(suffix, np.ascontiguousarray(of))[1].tobytes() for suffix, of in kinds.items()]
    floats = schema.Datum(channels=1, height=3, width=3, float_data=range(9))
    encoded = [schema.Datum(data=content, label=1, encoded=True) for content in packed]
    return [message.SerializeToString() for message in (datum.raw(pixels, 7), floats, *encoded)]


LABELS = struct.pack(">II", 2049, 3) + bytes(3)
_IMAGES = struct.pack(">IIII", 2051, 3, 4, 5) + bytes(range(60))

TARGETS: dict[str, Target] = {
    "net": Target(
        net,
        files("tests/data/proto/[vi]*.prototxt", "examples/lenet/*test.prototxt")
        + files("examples/googlenet/*test.prototxt")[:1],
        mutations.TEXT,
    ),
    "names": Target(names, files("tests/data/proto/*.prototxt", "examples/*/*solver*.prototxt"), mutations.TEXT),
    "solver": Target(
        solver, files("tests/data/proto/solver*.prototxt", "examples/*/*solver*.prototxt"), mutations.TEXT
    ),
    "caffemodel": Target(
        each(model, shown(inspect_files.model, "x.caffemodel"), lambda data: upgrades._binary(data, "model")),
        _models(),
        mutations.BINARY,
    ),
    "solverstate": Target(
        each(state, shown(inspect_files.state, "x.solverstate"), lambda data: solverstate.learned_net(data, "state")),
        _states(),
        mutations.BINARY,
    ),
    "mean": Target(
        each(lambda data: transform.mean_blob(data, "mean"), shown(inspect_files.mean, "x.binaryproto")),
        _means(),
        mutations.BINARY,
    ),
    "datum": Target(record, _records(), mutations.BINARY),
    "mnist": Target(mnist, [_IMAGES + LABELS], mutations.BINARY),
    "mnist packed": Target(mnist_packed, [gzip.compress(_IMAGES, mtime=0)], mutations.BINARY),
    "cifar": Target(cifar, [bytes(3073), bytes(range(256)) * 24 + bytes(2)], mutations.BINARY),
}
