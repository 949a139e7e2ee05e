"""Every file that a solver names, directly or through its nets: found, copied together, references rewritten."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text
from caffe_on_grid.proto.references import DATA, NET, PYTHON, WEIGHTS, Reference, references, rewrite
from caffe_on_grid.storage import paths


@dataclass
class Shipped:
    """What was put into the job's folder."""

    solver: str = ""
    """Name of the solver in it."""
    message: Any = None
    """The solver as written, its `net` replaced where another was asked for."""
    nets: dict[str, Path] = field(default_factory=dict)
    """Net files here, by the name that the solver has for them."""
    missing: dict[str, str] = field(default_factory=dict)
    """Local data sources that are not here, and what to say where a layer in use wants one."""
    modules: set[str] = field(default_factory=set)
    """Python layers' modules."""
    ignore_unknown: bool = False
    """Whether fields that Caffe lacks are left out."""
    remarks: list[str] = field(default_factory=list)
    """What was left out, one line each."""

    def read(self, name: str) -> str:
        """The text of a net that the solver names, as it is shipped but for references."""
        return self.text(self.nets[name], schema.NetParameter)

    def text(self, path: Path, cls: Any) -> str:
        """A prototxt of message `cls`, without the fields that are to be left out."""
        content = read_text(path)
        if not self.ignore_unknown:
            return content
        kept, remarks = text.without_unknown(cls, content, str(path))
        self.remarks += [line for line in remarks if line not in self.remarks]
        return kept


def read_text(path: Path) -> str:
    """A prototxt's text; ConfigError where it cannot be read. Bytes that are not UTF-8 survive in comments."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def absolute(uri: str) -> str:
    """`uri`, made absolute against the working directory where it is a local path."""
    local = paths.local_path(uri)
    return uri if local is None else str(local.absolute())


def ship(solver: str, inside: Path, net: Optional[str] = None, ignore_unknown: bool = False) -> Shipped:
    """Copy `solver` and all it names into `inside`; `net` (relative to the working directory) replaces its `net:`.

    Relative names are looked up beside the file that holds them, then in the working directory. `ignore_unknown`:
    fields that Caffe lacks are left out of what is shipped, and listed in the remarks, instead of refused.
    """
    shipper = _Shipper(inside)
    shipper.shipped.ignore_unknown = ignore_unknown
    path = Path(solver)
    content = shipper.shipped.text(path, schema.SolverParameter)
    message = text.parse(schema.SolverParameter, content, solver)
    if net is not None:
        content = _with_net(content, message, str(Path(net).absolute()), solver)
    shipper.shipped.message = message
    shipper.shipped.solver = shipper.write(path, content, "solver")
    return shipper.shipped


def _with_net(content: str, message: Any, net: str, where: str) -> str:
    """The solver's text with its `net:` replaced; the message too."""
    others = [
        name
        for name in ("train_net", "test_net", "net_param", "train_net_param", "test_net_param")
        if _has(message, name)
    ]
    if others:
        raise ConfigError(
            f"{where}: -net replaces the solver's net:, and this solver has {others[0]}; drop one of them"
        )
    old, message.net = message.net, net
    lines = [f for f in text.fields(content, where) if f.path == ("net",)] if old else []
    quoted = '"' + net.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if not lines:
        return f"net: {quoted}\n{content}"
    return content[: lines[0].start] + quoted + content[lines[0].end :]


def _has(message: Any, name: str) -> bool:
    return any(descriptor.name == name for descriptor, _ in message.ListFields())


class _Shipper:
    """Fills one folder; every name in it is used once."""

    def __init__(self, inside: Path) -> None:
        self.shipped = Shipped()
        self._inside = inside
        self._names: dict[Path, str] = {}
        self._taken = {"job.json"}
        self._roles: dict[str, Callable[[Path, Reference, str], Optional[str]]] = {
            NET: self._net,
            DATA: self._data,
            WEIGHTS: self._weights,
            PYTHON: self._module,
        }

    def write(self, path: Path, content: str, kind: str) -> str:
        """Write a prototxt's `content` with its references followed; its name in the folder."""
        name = self._name(path)
        renamed = dict(self._followed(path, references(content, kind, str(path))))
        target = self._inside / name
        target.write_text(rewrite(content, renamed), encoding="utf-8", errors="surrogateescape")
        return name

    def _followed(self, path: Path, found: list[Reference]) -> Iterator[tuple[str, str]]:
        for reference in found:
            new = self._roles.get(reference.role, self._file)(path, reference, f"{path}:{reference.line}")
            if new is not None:
                yield reference.value, new

    def _net(self, path: Path, reference: Reference, where: str) -> str:
        found = _find(path, reference.value, where)
        self.shipped.nets[reference.value] = found
        return self._names.get(found) or self.write(found, self.shipped.read(reference.value), "net")

    def _file(self, path: Path, reference: Reference, where: str) -> str:
        found = _find(path, reference.value, where)
        if found not in self._names:
            shutil.copyfile(found, self._inside / self._name(found))
        return self._names[found]

    def _data(self, path: Path, reference: Reference, where: str) -> Optional[str]:
        local = paths.local_path(reference.value)
        if local is None:
            return None
        found = next(_candidates(path, str(local)), None)
        if found is None:
            self.shipped.missing[reference.value] = _not_found(path, reference.value, where)
        return str(found or (path.parent / local).absolute())

    def _weights(self, path: Path, reference: Reference, where: str) -> str:
        """Models are not copied: their names are made absolute. One string may hold several, with commas."""
        names = [(name, paths.local_path(name)) for name in reference.value.split(",")]
        return ",".join(name if local is None else str(_find(path, str(local), where)) for name, local in names)

    def _module(self, path: Path, reference: Reference, where: str) -> None:
        """A Python layer's module keeps its name: the job's folder is on the ranks' path."""
        if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", reference.value):
            raise ConfigError(f"{where}: {reference.value!r} is not the name of a Python module")
        top = reference.value.split(".")[0]
        if top in self.shipped.modules:
            return
        self.shipped.modules.add(top)
        package = next(_candidates(path, top), None)
        if package is not None and package.is_dir():
            shutil.copytree(package, self._inside / top, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(_find(path, f"{top}.py", where), self._inside / f"{top}.py")

    def _name(self, path: Path) -> str:
        """A free name for `path`: its own, or with a number before the suffix."""
        name, number = path.name, 1
        while name in self._taken:
            number += 1
            name = f"{path.stem}-{number}{path.suffix}"
        self._taken.add(name)
        self._names[path] = name
        return name


def _candidates(path: Path, name: str) -> Iterator[Path]:
    """Where a name in the file `path` may be found, as far as it exists."""
    for folder in (path.parent, Path()):
        candidate = (folder / name).absolute()
        if candidate.exists():
            yield candidate


def _find(path: Path, name: str, where: str) -> Path:
    found = next(_candidates(path, name), None)
    if found is None:
        raise ConfigError(_not_found(path, name, where))
    if not found.is_file():
        raise ConfigError(f"{where}: {name} is not a file")
    return found


def _not_found(path: Path, name: str, where: str) -> str:
    beside = path.parent.absolute()
    places = [beside] if Path(name).is_absolute() or beside == Path.cwd() else [beside, Path.cwd()]
    looked = "" if Path(name).is_absolute() else f" in {' or '.join(map(str, places))}"
    return f"{where}: {name}: no such file{looked}"
