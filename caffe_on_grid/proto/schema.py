"""Caffe's messages as classes of our own, under the protobuf package `caffe_on_grid`.

They are built at import from `fields.txt` in a descriptor pool of their own, so they work with protobuf 3.12 as with
a current one, and beside a real `import caffe` in the same process. Wire format, text format, defaults and enum values
are Caffe's.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Optional

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "caffe_on_grid"

SCALARS: dict[str, int] = {
    "double": 1,
    "float": 2,
    "int64": 3,
    "int32": 5,
    "bool": 8,
    "string": 9,
    "bytes": 12,
    "uint32": 13,
}
"""Scalar kinds and their numbers in FieldDescriptorProto.Type."""
_MESSAGE, _ENUM = 11, 14


@dataclass(frozen=True)
class FieldSpec:
    """One field: `kind` is a scalar's name, "enum" or the name of a message."""

    name: str
    number: int
    kind: str
    repeated: bool = False
    packed: bool = False
    required: bool = False
    default: Optional[str] = None
    enum: Optional[str] = None
    """Enum fields: `Message.Enum`, the key into ENUMS."""

    @property
    def is_message(self) -> bool:
        """Whether the field holds a message."""
        return self.kind != "enum" and self.kind not in SCALARS


_FIELD = re.compile(r"(\d+):(\w+) (\w+)(?:\{([^}]*)\})?(\*?)(p?)(!?)(?:=(.*))?")


def _lines() -> list[tuple[str, list[str]]]:
    text = (pkgutil.get_data(__name__, "fields.txt") or b"").decode()
    rows = (line.split(":", 1) for line in text.splitlines() if line and not line.startswith("#"))
    return [(name, fields.strip().split("; ")) for name, fields in rows]


def _read() -> tuple[dict[str, dict[str, FieldSpec]], dict[str, dict[str, int]]]:
    """Messages and enums of fields.txt."""
    lines = _lines()
    enums: dict[str, dict[str, int]] = {}
    home: dict[str, str] = {}
    matches = [(name, m) for name, fields in lines for m in map(_FIELD.fullmatch, fields) if m]
    for message_name, found in matches:
        if found[4] is not None:
            key = f"{message_name}.{found[3]}"
            home.setdefault(found[3], key)
            enums[key] = {n: int(v) for n, v in (pair.split("=") for pair in found[4].split())}
    messages: dict[str, dict[str, FieldSpec]] = {name: {} for name, _ in lines}
    for message_name, found in matches:
        own = f"{message_name}.{found[3]}"
        enum = own if own in enums else home.get(found[3])
        messages[message_name][found[2]] = FieldSpec(
            name=found[2],
            number=int(found[1]),
            kind="enum" if enum else found[3],
            repeated=bool(found[5]),
            packed=bool(found[6]),
            required=bool(found[7]),
            default=found[8],
            enum=enum,
        )
    return messages, enums


MESSAGES, ENUMS = _read()
"""Message name → field name → FieldSpec; `Message.Enum` → value name → number."""


def _add_field(owner: Any, spec: FieldSpec, package: str) -> None:
    field = owner.field.add(name=spec.name, number=spec.number)
    field.label = 3 if spec.repeated else 2 if spec.required else 1
    field.type = _ENUM if spec.enum else SCALARS.get(spec.kind, _MESSAGE)
    if field.type in (_ENUM, _MESSAGE):
        field.type_name = f".{package}.{spec.enum or spec.kind}"
    if spec.packed:
        field.options.packed = True
    if spec.default is not None:
        field.default_value = spec.default.lower() if spec.kind == "bool" else spec.default


def _file(package: str, messages: Mapping[str, Mapping[str, FieldSpec]]) -> Any:
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto2")
    for name, fields in messages.items():
        owner = file.message_type.add(name=name)
        for spec in fields.values():
            _add_field(owner, spec, package)
            if spec.enum and spec.enum.split(".")[0] == name and spec.enum in ENUMS:
                _add_enum(owner, spec.enum)
    return file


def _add_enum(owner: Any, key: str) -> None:
    name = key.split(".")[1]
    if all(enum.name != name for enum in owner.enum_type):
        enum = owner.enum_type.add(name=name)
        for value, number in ENUMS[key].items():
            enum.value.add(name=value, number=number)


def classes(package: str, messages: Mapping[str, Mapping[str, FieldSpec]]) -> dict[str, Any]:
    """Message classes for a table like MESSAGES, in a descriptor pool of their own."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_file(package, messages).SerializeToString())
    found = {name: pool.FindMessageTypeByName(f"{package}.{name}") for name in messages}
    if hasattr(message_factory, "GetMessageClass"):
        return {name: message_factory.GetMessageClass(descriptor) for name, descriptor in found.items()}
    factory: Any = message_factory.MessageFactory(pool)
    return {name: factory.GetPrototype(descriptor) for name, descriptor in found.items()}


_CLASSES = classes(PACKAGE, MESSAGES)


def message(name: str) -> Any:
    """The class of message `name`; raises KeyError for a name that fields.txt lacks."""
    return _CLASSES[name]


TRAIN: int = ENUMS["NetState.Phase"]["TRAIN"]
TEST: int = ENUMS["NetState.Phase"]["TEST"]
PHASES: dict[int, str] = {TRAIN: "TRAIN", TEST: "TEST"}
LMDB: int = ENUMS["DataParameter.DB"]["LMDB"]

BlobProto: Any = message("BlobProto")
BlobShape: Any = message("BlobShape")
Datum: Any = message("Datum")
LayerParameter: Any = message("LayerParameter")
NetParameter: Any = message("NetParameter")
NetState: Any = message("NetState")
NetStateRule: Any = message("NetStateRule")
SolverParameter: Any = message("SolverParameter")
SolverState: Any = message("SolverState")
TransformationParameter: Any = message("TransformationParameter")
V1LayerParameter: Any = message("V1LayerParameter")
