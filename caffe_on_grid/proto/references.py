"""What prototxts name outside themselves: files, folders, modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, tree
from caffe_on_grid.proto import text as text_format

NET = "net"
MEAN = "mean"
WEIGHTS = "weights"
SOURCE = "source"
PYTHON = "python"
DATA = "data"
ROLES: dict[str, str] = {
    NET: "a net prototxt",
    MEAN: "a mean file",
    WEIGHTS: "a .caffemodel (a solver may name several in one string, with commas)",
    SOURCE: "a file that a layer reads: InfogainLoss's matrix, a label map",
    PYTHON: "a module of Python layers (its import name)",
    DATA: "records: never shipped",
}

_LAYER: dict[tuple[str, ...], str] = {
    ("transform_param", "mean_file"): MEAN,
    ("data_param", "mean_file"): MEAN,
    ("image_data_param", "mean_file"): MEAN,
    ("window_data_param", "mean_file"): MEAN,
    ("cos_data_param", "top", "transform_param", "mean_file"): MEAN,
    ("layer", "meanfile"): MEAN,
    ("infogain_loss_param", "source"): SOURCE,
    ("annotated_data_param", "label_map_file"): SOURCE,
    ("detection_output_param", "save_output_param", "label_map_file"): SOURCE,
    ("python_param", "module"): PYTHON,
    **{(f"{kind}_param", "source"): DATA for kind in ("data", "hdf5_data", "image_data", "window_data", "memory_data")},
    ("cos_data_param", "source"): DATA,
    ("image_data_param", "root_folder"): DATA,
    ("window_data_param", "root_folder"): DATA,
    ("layer", "source"): DATA,
}
"""Fields below a layer → role."""
_LAYERS = ("layer", "layers")
_SOLVER: dict[tuple[str, ...], str] = {("net",): NET, ("train_net",): NET, ("test_net",): NET, ("weights",): WEIGHTS}
_INLINE = ("net_param", "train_net_param", "test_net_param")


@dataclass(frozen=True)
class Reference:
    """One name of something outside, and where it stands."""

    field_path: str
    """e.g. "layer.data_param.source"."""
    value: str
    line: int
    column: int
    role: str
    """One of ROLES."""


def kind_of(text: str, where: str = "prototxt") -> str:
    """ "solver" or "net", by the fields at the top of the prototxt; raises ConfigError where it is neither."""
    names = {field.path[0] for field in text_format.fields(text, where)}
    if names & {"layer", "layers", "input"}:
        return "net"
    if names & set(schema.MESSAGES["SolverParameter"]):
        return "solver"
    raise ConfigError(f"{where}: neither a net (no layer) nor a solver (none of its fields)")


def references(text: str, kind: str, where: str = "prototxt") -> list[Reference]:
    """All that the prototxt names, in order; `kind` is "solver" or "net". Raises ConfigError for malformed text."""
    if kind not in ("solver", "net"):
        raise ConfigError(f"{where}: unknown kind of prototxt {kind!r}; known: solver, net")
    found = text_format.fields(text, where)
    infogain = {f.parent for f in found if f.path[-2:] == ("layer", "type") and f.value == "infogain_loss"}
    return [
        Reference(".".join(field.path), field.value, field.line, field.column, role)
        for field in found
        for role in [_role(field, kind, infogain)]
        if role and field.value
    ]


def _role(field: text_format.Field, kind: str, infogain: set[int]) -> str:
    """The field's role, or nothing."""
    path = field.path
    if not field.is_string:
        return ""
    if kind == "solver":
        if path in _SOLVER:
            return _SOLVER[path]
        path = path[1:] if path[0] in _INLINE else ()
    if len(path) < 2 or path[0] not in _LAYERS:
        return ""
    return SOURCE if field.parent in infogain and path[-1] == "source" else _LAYER.get(path[1:], "")


def rewrite(text: str, renamed: Mapping[str, str]) -> str:
    """`text` with the values that are references and stand in `renamed` replaced; all else stays byte for byte."""
    pieces, done = [], 0
    for field in text_format.fields(text):
        is_reference = _role(field, "net", set()) or _role(field, "solver", set())
        if is_reference and field.value in renamed:
            pieces += [text[done : field.start], tree.quote(renamed[field.value])]
            done = field.end
    return "".join((*pieces, text[done:]))
