"""Spark's settings as the site has them: the properties file that spark-submit would read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import ConfigError

_LINE = re.compile(r"\s*([^#!\s=:][^\s=:]*)(?:\s*[=:]\s*|\s+)?(.*?)\s*\Z")


def defaults(properties_file: Optional[str], spark_home: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of --properties-file, else of spark-defaults.conf in $SPARK_CONF_DIR or Spark's conf/, if any.

    ConfigError where a named file cannot be read.
    """
    folder = environ.get("SPARK_CONF_DIR") or f"{spark_home}/conf"
    path = Path(properties_file or f"{folder}/spark-defaults.conf")
    if properties_file is None and not path.is_file():
        return {}
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ConfigError(f"--properties-file {path}: cannot be read: {error.strerror}") from None


def parse(text: str) -> dict[str, str]:
    """The keys and values of a properties text."""
    found = (_LINE.match(line) for line in text.splitlines())
    return {match[1]: match[2] for match in found if match}
