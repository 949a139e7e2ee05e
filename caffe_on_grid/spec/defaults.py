"""Values of a job's leaves from configuration layers: which may be set, what they may be, and which layer won.

A leaf is a field of JobSpec by its dotted name ("cluster.queue"). Layers come lowest first; a later one wins leaf by
leaf; `spark_conf` (the leaf cluster.conf) is joined key by key. Reading files is the caller's.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from caffe_on_grid.errors import ConfigError, GridError
from caffe_on_grid.spec import codec, units
from caffe_on_grid.spec.job import JobSpec

FIXED = ("tasks", "solver", "origins", "version")
"""Fields of JobSpec that no layer sets: the verb and the gateway do."""

SPARK_CONF = "cluster.conf"
"""The leaf that configuration files call `spark_conf`."""

PREFIX = "CAFFE_ON_GRID_"

CHOICES: dict[str, tuple[str, ...]] = {
    "cluster.deploy_mode": ("client", "cluster"),
    "engine.name": ("auto", "caffe", "torch"),
    "engine.solver_mode": ("auto", "cpu", "gpu"),
    "engine.on_nan": ("stop", "continue"),
    "sync.strategy": ("allreduce",),
    "sync.connection": ("auto", "ethernet", "infiniband"),
}
"""Leaves that hold one word of a list."""

MINIMA: dict[str, float] = {
    "cluster.executors": 1,
    "cluster.executor_cores": 1,
    "cluster.gang_timeout_s": 1,
    "cluster.step_timeout_s": 1,
    "runtime.blas_threads": 1,
    "engine.devices": 1,
    "data.seed": 0,
    "data.feeders": 1,
    "data.prefetch": 1,
    "sync.check_every": 0,
    "sync.bucket_mib": 1,
    "test_iterations": 1,
    "test_net": 0,
}
"""Smallest value of the leaves that are numbers."""

MEMORY = ("cluster.executor_memory", "cluster.driver_memory")
"""Leaves that are memory sizes as Spark writes them."""


@dataclass(frozen=True)
class Leaf:
    """One leaf of JobSpec."""

    name: str
    type: Any
    """str, int, float (seconds), bool, tuple or dict."""
    default: Any


@dataclass(frozen=True)
class Layer:
    """Values of some leaves, from one place."""

    origin: str
    """What `config show --origin` says: a file's path, "option", …; `{leaf}`-wise texts are in `origins`."""
    values: Mapping[str, Any]
    origins: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Settings:
    """Every leaf's value, and the origin of those that a layer has set."""

    values: dict[str, Any]
    origins: dict[str, str]


def leaves() -> dict[str, Leaf]:
    """All leaves by name, in JobSpec's order."""
    return {leaf.name: leaf for leaf in _leaves(JobSpec, "")}


def _leaves(cls: Any, prefix: str) -> Iterator[Leaf]:
    hints = typing.get_type_hints(cls)
    for entry in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[entry.name]):
            yield from _leaves(hints[entry.name], f"{entry.name}.")
        elif prefix or entry.name not in FIXED:
            yield Leaf(prefix + entry.name, _plain(hints[entry.name]), _default(entry))


def _default(entry: dataclasses.Field[Any]) -> Any:
    return entry.default if entry.default_factory is dataclasses.MISSING else entry.default_factory()


def _plain(hint: Any) -> Any:
    """The class under Optional[X], tuple[X, ...] and dict[K, V]."""
    args = [a for a in typing.get_args(hint) if a is not type(None)]
    return _plain(args[0]) if typing.get_origin(hint) is typing.Union else typing.get_origin(hint) or hint


def value(leaf: Leaf, given: Any) -> Any:
    """The leaf's value that a text or a YAML value stands for; ValueError says what was expected.

    None (an option not given, `key: null`) is the leaf's default.
    """
    if given is None:
        return leaf.default
    read = _READ[leaf.type](given)
    if read not in CHOICES.get(leaf.name, (read,)):
        near = codec.suggestion(str(read), CHOICES[leaf.name])
        raise ValueError(f"expected one of {', '.join(CHOICES[leaf.name])}, got {read!r}{near}")
    if leaf.name in MINIMA and read < MINIMA[leaf.name]:
        raise ValueError(f"expected at least {MINIMA[leaf.name]:g}, got {given!r}")
    if leaf.name in MEMORY:
        units.mebibytes(read)
    return read


def _text(given: Any) -> str:
    if isinstance(given, bool):
        return str(given).lower()
    if not isinstance(given, (str, int, float)):
        raise ValueError(f"expected a text, got {given!r}")
    return str(given)


def _integer(given: Any) -> int:
    try:
        return int(_text(given))
    except ValueError:
        raise ValueError(f"expected a whole number, got {given!r}") from None


_FLAGS = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}


def _flag(given: Any) -> bool:
    word = _text(given).lower()
    if word not in _FLAGS:
        raise ValueError(f"expected on or off, got {given!r}")
    return _FLAGS[word]


def _texts(given: Any) -> tuple[str, ...]:
    if isinstance(given, (list, tuple)):
        return tuple(_text(item) for item in given)
    return tuple(item.strip() for item in _text(given).split(",") if item.strip())


def _pairs(given: Any) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise ValueError(f"expected a map of Spark's settings, got {given!r}")
    return {str(key): _text(item) for key, item in given.items()}


_READ: dict[Any, Callable[[Any], Any]] = {
    str: _text,
    int: _integer,
    float: lambda given: units.seconds(_text(given)),
    bool: _flag,
    tuple: _texts,
    dict: _pairs,
}


def file_layer(document: Any, origin: str) -> Layer:
    """The layer of a configuration file's document (nested mappings by JobSpec's names); ConfigError naming a bad key.

    `profiles` is left out: see `profile_layer`.
    """
    top = {k: v for k, v in _section(document, origin).items() if k != "profiles"}
    return Layer(origin, dict(_flat(top, origin)))


def profile_names(document: Any, origin: str) -> tuple[str, ...]:
    """Names of the profiles in a configuration file's document."""
    return tuple(_section(_section(document, origin).get("profiles"), f"{origin}: profiles"))


def profile_layer(document: Any, origin: str, name: str) -> Layer:
    """The layer of one profile in a configuration file's document; empty where the file has none of that name."""
    profiles = _section(_section(document, origin).get("profiles"), f"{origin}: profiles")
    return file_layer(profiles.get(name), f"{origin}, profile {name}")


def _section(document: Any, where: str) -> Mapping[str, Any]:
    if document is not None and not isinstance(document, Mapping):
        raise ConfigError(f"{where}: expected keys with values, got {document!r}")
    return document or {}


def _flat(document: Mapping[str, Any], origin: str) -> Iterator[tuple[str, Any]]:
    known = leaves()
    sections = {name.split(".")[0] for name in known if "." in name}
    for key, given in document.items():
        if key == "spark_conf":
            yield SPARK_CONF, _checked(known[SPARK_CONF], given, f"{origin}: spark_conf", ConfigError)
        elif key in sections:
            for name, inner in _section(given, f"{origin}: {key}").items():
                yield _entry(known, f"{key}.{name}", inner, origin)
        else:
            yield _entry(known, str(key), given, origin)


def _entry(known: Mapping[str, Leaf], name: str, given: Any, origin: str) -> tuple[str, Any]:
    names = [n for n in known if n != SPARK_CONF] + ["spark_conf", "profiles"]
    if name not in names:
        raise ConfigError(f"{origin}: unknown key {name!r}{codec.suggestion(name, names)}")
    return name, _checked(known[name], given, f"{origin}: {name}", ConfigError)


def _checked(leaf: Leaf, given: Any, where: str, error: type[GridError]) -> Any:
    try:
        return value(leaf, given)
    except ValueError as problem:
        raise error(f"{where}: {problem}") from None


def variable(leaf: str) -> str:
    """The environment variable of a leaf: cluster.queue → CAFFE_ON_GRID_CLUSTER_QUEUE."""
    return PREFIX + leaf.replace(".", "_").upper()


ALIASES = {PREFIX + "RUNTIME": "runtime.path"}
"""Short variables, beside the long ones."""


def environment_layer(environ: Mapping[str, str]) -> Layer:
    """The layer of CAFFE_ON_GRID_* variables; ConfigError for one that begins like a section and names no leaf."""
    known = {variable(leaf.name): leaf for leaf in leaves().values() if leaf.type is not dict}
    known.update({name: leaves()[leaf] for name, leaf in ALIASES.items()})
    sections = tuple({name[: name.index("_", len(PREFIX)) + 1] for name in known if "_" in name[len(PREFIX) :]})
    given = {name: text for name, text in environ.items() if name in known or name.startswith(sections)}
    for name in given:
        if name not in known:
            raise ConfigError(f"environment: unknown variable {name}{codec.suggestion(name, known)}")
    values = {known[name].name: _checked(known[name], text, name, ConfigError) for name, text in given.items()}
    return Layer("environment", values, {known[name].name: f"variable {name}" for name in given})


def settings(layers: Sequence[Layer]) -> Settings:
    """All leaves after `layers`, lowest first, on top of the built-in defaults."""
    values = {name: leaf.default for name, leaf in leaves().items()}
    values[SPARK_CONF] = {}
    origins: dict[str, str] = {}
    for layer in layers:
        for name, given in layer.values.items():
            _put(values, origins, name, given, layer.origins.get(name, layer.origin))
    return Settings(values, origins)


def _put(values: dict[str, Any], origins: dict[str, str], name: str, given: Any, origin: str) -> None:
    if name == SPARK_CONF:
        values[name] = {**values[name], **given}
        origins.update({f"{name}.{key}": origin for key in given})
    else:
        values[name] = given
        origins[name] = origin


def job(resolved: Settings, tasks: tuple[str, ...], solver: str, **parts: Any) -> JobSpec:
    """The JobSpec of resolved settings; `parts` replace whole leaves without a layer (none is checked again)."""
    nested: dict[str, Any] = {}
    for name, given in {**resolved.values, **parts}.items():
        section, _, entry = name.rpartition(".")
        target = nested.setdefault(section, {}) if section else nested
        target[entry] = given
    hints = typing.get_type_hints(JobSpec)
    built = {
        name: hints[name](**given) if dataclasses.is_dataclass(hints[name]) else given for name, given in nested.items()
    }
    return JobSpec(tasks=tasks, solver=solver, origins=dict(resolved.origins), **built)
