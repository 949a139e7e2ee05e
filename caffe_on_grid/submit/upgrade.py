"""Old prototxts and models rewritten in today's form, as Caffe's upgrade tools do: `caffe-on-grid upgrade IN OUT`."""

from __future__ import annotations

from typing import Any, Optional

from google.protobuf.message import DecodeError

from caffe_on_grid.errors import ConfigError, UsageError
from caffe_on_grid.proto import references, schema, text, upgrade, upgrade_v0
from caffe_on_grid.storage.registry import connect

LARGEST = 2**31 - 1
"""Most bytes of a binary protobuf message."""
BINARY = ".caffemodel"
_TODAY = "is in today's form already: written as it is"


def rewrite(source: str, target: str, overwrite: bool = False, ignore_unknown: bool = False) -> list[str]:
    """Write the net, solver or .caffemodel `source` in today's form to `target` (URIs); remarks, one line each.

    Text stays text and binary stays binary. Raises ConfigError for what cannot be read or upgraded and for a `target`
    that exists (unless `overwrite`), UsageError where the names ask for another form. A V0 net whose layers have fields
    that their types lack is written as Caffe's tool writes it, without them, and is then a ConfigError too.
    """
    _check_names(source, target)
    storage = connect(target)
    if storage.exists(target) and (storage.is_folder(target) or not overwrite):
        raise ConfigError(f"{target}: exists; remove it, name another, or say --overwrite")
    content = connect(source).read(source)
    remarks: list[str] = []
    if source.endswith(BINARY):
        data, lost = _binary(content, source)
    else:
        data, lost = _text(content, source, remarks if ignore_unknown else None)
    storage.write(data, target)
    if lost:
        raise ConfigError(
            f"{target}: written, but not all of {source} is in it: {'; '.join(lost)}: see to them by hand"
        )
    return [*remarks, *([f"{source} {_TODAY}"] if data == content else [])]


def _check_names(source: str, target: str) -> None:
    if source.endswith(".h5"):
        raise UsageError(f"{source}: models in HDF5 are in today's form: there is nothing to upgrade")
    if source.endswith(BINARY) != target.endswith(BINARY):
        kind = "binary" if source.endswith(BINARY) else "text"
        raise UsageError(f"{target}: {source} is {kind} and stays so: only a model, and every model, ends in {BINARY}")


def _binary(content: bytes, where: str) -> tuple[bytes, list[str]]:
    """A model: layers in today's form with the blobs that they had; and what is left out."""
    if len(content) > LARGEST:
        raise ConfigError(f"{where}: {len(content)} bytes; a binary model has at most 2 GiB")
    try:
        net = schema.NetParameter.FromString(content)
    except DecodeError:
        raise ConfigError(f"{where}: not a {BINARY} (binary NetParameter) of Caffe's") from None
    if not (net.layer or net.layers):
        raise ConfigError(f"{where}: not a {BINARY}: it holds no layers")
    try:
        return bytes(upgrade.upgrade_net(net, where).SerializeToString()), upgrade_v0.left_out(net)
    except ValueError:  # of protobuf, which looks at texts when they are moved
        raise ConfigError(f"{where}: it holds a text that is not UTF-8: is it damaged?") from None


def _text(content: bytes, where: str, left_out: Optional[list[str]]) -> tuple[bytes, list[str]]:
    """A net or a solver, and what of it is left out; what is in today's form stays byte for byte.

    Unknown fields go to `left_out`, if given.
    """
    source = content.decode("utf-8", "surrogateescape")
    kind = references.kind_of(source, where)
    cls = schema.SolverParameter if kind == "solver" else schema.NetParameter
    if left_out is not None:
        source, left_out[:] = text.without_unknown(cls, source, where)
    message = text.parse(cls, source, where)
    upgraded: Any = (upgrade.upgrade_solver if kind == "solver" else upgrade.upgrade_net)(message, where)
    kept = source if upgraded == message else text.render(upgraded)
    lost = [] if kind == "solver" else upgrade_v0.left_out(message)
    return kept.encode("utf-8", "surrogateescape"), lost
