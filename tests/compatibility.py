"""docs/caffe-compatibility.md, from the tables of layer types and fields; here are the exceptions from "same" alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from caffe_on_grid.proto import forks, graph, schema, shapes, upgrade_v0

ROOT = Path(__file__).resolve().parents[1]
Note = tuple[str, str]
"""Status (same, differs, no effect, refused) and why."""

IN_PLACE = "in place the gradient is the right one, with a warning; Caffe's is wrong (`--strict-caffe` has it)"
OVERWRITES = "in place the numbers are the right ones, with a warning; Caffe's are wrong"
STALE = (
    "with recurrent weights shared by name the numbers are the right ones, with a warning; in Caffe in TRAIN the time "
    "steps after the first keep their own (`--strict-caffe` has it)"
)
TYPES: dict[str, str] = {
    **dict.fromkeys(("BNLL", "LRN", "Log"), IN_PLACE),
    **dict.fromkeys(("Convolution", "Deconvolution", "Eltwise", "Im2col", "InnerProduct"), OVERWRITES),
    **dict.fromkeys(("LSTM", "RNN"), STALE),
    "ArgMax": "a NaN counts as the largest; in Caffe the order is then any",
    "BatchNorm": "`eps: 0`: a channel without variance gives 0, in Caffe NaN",
    "Clip": f"{IN_PLACE}; a NaN stays NaN, in Caffe it becomes min",
    "Power": (
        f"{IN_PLACE}; where the base is 0 the gradient is the right one, in Caffe NaN unless power is 0, 1 or 2 "
        "(`--strict-caffe` has it)"
    ),
    **dict.fromkeys(
        ("ELU", "Exp", "Sigmoid", "Softmax", "Swish", "TanH"),
        "where a layer after it overwrites its top in place the gradient is the right one, with a warning",
    ),
    "MVN": f"{IN_PLACE}; so too where a layer after it overwrites its top",
    "Data": "backend LMDB; records come from this tool's own source, dealt out to the ranks and shuffled",
    "Dropout": "on a GPU the mask comes from PyTorch's generator",
    "ContrastiveLoss": "there must be as many flags as pairs; Caffe reads beyond fewer",
    "DummyData": "on a GPU too the values are those of Caffe on a CPU",
    "Pooling": f"STOCHASTIC works on a CPU too, where Caffe refuses it; MAX: a NaN wins, in Caffe never; {OVERWRITES}",
    "SPP": f"STOCHASTIC works on a CPU too, where Caffe refuses it; {OVERWRITES}",
    "Python": "runs with `--allow-python-layers` alone; its module `caffe` is this tool's",
}
"""What differs, or is to be said, of a type in engine torch (data: in both)."""

_UNSUPPORTED_MESSAGES = {
    "CoSData": ("CoSDataParameter", "CoSTopParameter"),
    "HDF5Data": ("HDF5DataParameter",),
    "ImageData": ("ImageDataParameter",),
    "MemoryData": ("MemoryDataParameter",),
    "WindowData": ("WindowDataParameter",),
}
_ENGINE = ("no effect", "a way of computing: the numbers are the same")
_LOG = ("differs", "engine torch has no such log")
_OLD_TRANSFORM = ("no effect", "as in Caffe, with a warning: `transform_param` has it")
FIELDS: dict[str, Note] = {
    **{f"{name}.engine": _ENGINE for name, fields in schema.MESSAGES.items() if "engine" in fields},
    "BlobProto.diff": ("no effect", "read over; models are written without gradients"),
    "BlobProto.double_diff": ("no effect", "read over; models are written without gradients"),
    "ConvolutionParameter.dilation": ("same", "0 is refused, where Caffe reads one value again and again"),
    "ConvolutionParameter.force_nd_im2col": _ENGINE,
    "DataParameter.backend": ("differs", "LMDB only: LEVELDB is refused; where none is given, LMDB is expected"),
    "DataParameter.batch_size": ("same", "of each rank"),
    "DataParameter.force_encoded_color": ("no effect", "records are decoded with the channels that they have"),
    "DataParameter.prefetch": ("no effect", "`--prefetch` is"),
    "DataParameter.rand_skip": ("no effect", "records are shuffled (`--shuffle`), from `--seed`"),
    **{f"DataParameter.{name}": _OLD_TRANSFORM for name in ("crop_size", "mean_file", "mirror", "scale")},
    "LayerParameter.sigmoid_param": _ENGINE,
    "LayerParameter.source_class": ("no effect", "CaffeOnSpark's: sources are chosen by the layer's type"),
    "LayerParameter.tanh_param": _ENGINE,
    "NetParameter.debug_info": _LOG,
    "NetParameter.force_backward": ("same", "what it forces into a layer or a bottom without a gradient ends there"),
    "PoolingParameter.ceil_mode": ("same", "of forks; becomes round_mode"),
    "PythonParameter.share_in_parallel": ("no effect", "ranks are processes of their own"),
    "RecurrentParameter.debug_info": _LOG,
    "SolverParameter.debug_info": _LOG,
    "SolverParameter.device_id": ("no effect", "each rank has the device that it was dealt"),
    "SolverParameter.iter_size": ("same", "0 is refused, where Caffe divides by it"),
    "SolverParameter.layer_wise_reduce": ("no effect", "gradients always travel as they become final"),
    "SolverParameter.random_seed": ("same", "rank r's stream is that of seed + r, as in Caffe"),
    "SolverParameter.display": ("differs", "after the last step Caffe runs one more batch forward and shows its loss"),
    "SolverParameter.test_iter": ("differs", "0: one pass over the source, with a warning; in Caffe no test"),
    "SolverParameter.snapshot_diff": ("differs", "engine torch writes no gradients, with a warning"),
    "SolverParameter.snapshot_prefix": (
        "differs",
        "its last part (unset, or a folder: the solver file's name) names the snapshots; they lie in the run's folder",
    ),
    "SolverParameter.solver_mode": ("differs", "unset: GPU where there are devices; `--solver-mode` has the last word"),
    "SolverParameter.test_compute_loss": ("no effect", "a loss in a TEST net is one of its outputs anyway"),
    "TransformationParameter.crop_size": ("differs", "where it is random: other draws than Caffe's, from `--seed`"),
    "TransformationParameter.mirror": ("differs", "other draws than Caffe's, from `--seed`"),
}
"""`Message.field` → what is not simply the same."""

HEAD = """# What of Caffe is the same here

Every layer type and every field of Caffe 1.0's messages, of CaffeOnSpark's additions and of the forks' layers that are
known here. A test makes this page from the package's tables: `ACCEPT=1 pytest tests/unit/test_compatibility.py`.

- **same**: means what it means in Caffe, with the same numbers (see [the torch engine](torch-engine.md)).
- **by formula**: a fork's layer by its published formula; Caffe itself lacks it.
- **differs**, **no effect**: as the note says. **refused**: an error that names it.

What is in no table is refused with its place: `file:line:column`; `--ignore-unknown-fields` leaves unknown fields out.

## Layer types

| type | engine caffe | engine torch | ONNX | note |
|---|---|---|---|---|
"""


def _keys(module: str, *names: str) -> set[str]:
    """The keys of dictionaries that stand in a module of the package, which need not be importable here."""
    tree = ast.parse((ROOT / "caffe_on_grid" / module).read_text(encoding="utf-8"))
    tables = {node.target.id: node.value for node in tree.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    return {key.value for name in names for key in tables[name].keys if key is not None}  # type: ignore[union-attr]


def torch_types() -> set[str]:
    """Types that engine torch builds."""
    return _keys("engine/torch/layers.py", "CAFFE", "FORKS")


def onnx_types() -> set[str]:
    """Types that `export` writes as ONNX."""
    return _keys("engine/export/onnx_net.py", "TYPES")


def type_rows() -> Iterator[str]:
    """A row for each type."""
    torch, onnx = torch_types(), onnx_types()
    for name in sorted({*shapes.RULES, *graph.UNSUPPORTED}, key=str.lower):
        if name in graph.UNSUPPORTED:
            yield f"| {name} | refused | refused | refused | not yet; `caffe-on-grid convert` makes LMDBs of records |"
            continue
        known = name in shapes.CAFFE
        if name in ("Data", "Input"):
            states = ["same"] * 2 + ["an input"]
        else:
            built = ("same" if known else "by formula") if name in torch else "refused"
            states = ["same" if known else "refused", built, _onnx(name, onnx)]
        yield f"| {name} | {' | '.join(states)} | {TYPES.get(name, '')} |"
    for name, owner in sorted(forks.LAYERS.items(), key=lambda pair: pair[0].lower()):
        yield f"| {name} | refused | refused | refused | of {owner} |"


def _onnx(name: str, onnx: set[str]) -> str:
    if name in onnx:
        return "yes"
    ends = shapes.RULES[name].loss or name in ("Accuracy", "Silence", "HDF5Output")
    instead = {"SoftmaxWithLoss": "as Softmax", "SigmoidCrossEntropyLoss": "as Sigmoid"}
    return instead.get(name, "left out" if ends else "refused")


def note(message: str, field: str) -> Note:
    """A field's status and why."""
    if message == "V0LayerParameter":
        known = field in upgrade_v0.PLACES or field in ("name", "type", "blobs", "blobs_lr", "weight_decay")
        return ("same", "upgraded") if known else ("no effect", "as in Caffe's own upgrade")
    if message == "V1LayerParameter":
        return "same", "upgraded"
    for kind, messages in _UNSUPPORTED_MESSAGES.items():
        if message in messages and kind in graph.UNSUPPORTED:
            return "refused", f"with the {kind} layer"
    return FIELDS.get(f"{message}.{field}", ("same", ""))


def field_rows(message: str) -> Iterator[str]:
    """A row for each field."""
    for field in schema.MESSAGES[message].values():
        kind = (field.enum or "").partition(".")[2] if field.kind == "enum" else field.kind
        default = "" if field.default is None else f"`{field.default}`"
        status, why = note(message, field.name)
        yield f"| {field.name} | {kind}{' …' if field.repeated else ''} | {default} | {status} | {why} |"


def page() -> str:
    """The whole document."""
    lines = [HEAD.rstrip("\n"), *type_rows(), "", "## Fields"]
    for message in schema.MESSAGES:
        lines += ["", f"### {message}", "", "| field | kind | default | here | note |", "|---|---|---|---|---|"]
        lines += field_rows(message)
    return "\n".join(lines) + "\n"
