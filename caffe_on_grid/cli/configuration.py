"""Configuration layers from files, the environment and the options; files are YAML."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Optional

import click

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.spec import defaults
from caffe_on_grid.spec.defaults import Layer, Settings

NAME = "caffe-on-grid.yaml"
SYSTEM = Path("/etc/caffe-on-grid")


def files(environ: Mapping[str, str]) -> Iterator[Path]:
    """Existing configuration files, lowest first; ConfigError where $CAFFE_ON_GRID_CONF names none."""
    named = environ.get("CAFFE_ON_GRID_CONF")
    home = environ.get("XDG_CONFIG_HOME") or (environ.get("HOME") and f"{environ['HOME']}/.config")
    places = [SYSTEM, Path(named) if named else None, Path(home) / "caffe-on-grid" if home else None, Path()]
    for place in places:
        path = None if place is None else place / NAME if place.is_dir() else place
        if path is not None and path.is_file():
            yield path
        elif named and place == Path(named):
            raise ConfigError(f"CAFFE_ON_GRID_CONF={named}: no such file, nor a folder with {NAME} in it")


def read(path: Path) -> Any:
    """A file's document; ConfigError with the line of what is not YAML."""
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{line}: not YAML: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None


def settings(environ: Mapping[str, str], profile: Optional[str] = None, options: Optional[Layer] = None) -> Settings:
    """All leaves: built-in < files < the profile < CAFFE_ON_GRID_* < options."""
    documents = [(str(path), read(path)) for path in files(environ)]
    layers = [defaults.file_layer(document, origin) for origin, document in documents]
    layers += _profile(documents, profile or environ.get("CAFFE_ON_GRID_PROFILE"))
    layers.append(defaults.environment_layer(environ))
    return defaults.settings(layers if options is None else [*layers, options])


def _profile(documents: list[tuple[str, Any]], name: Optional[str]) -> list[Layer]:
    if name is None:
        return []
    known = sorted({entry for origin, document in documents for entry in defaults.profile_names(document, origin)})
    if name not in known:
        raise click.UsageError(f"no profile {name!r} in the configuration files; known: {', '.join(known) or 'none'}")
    return [defaults.profile_layer(document, origin, name) for origin, document in documents]


def current(profile: Optional[str] = None, options: Optional[Layer] = None) -> Settings:
    """The settings of this process."""
    return settings(os.environ, profile, options)
