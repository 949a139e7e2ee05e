"""Unpack ARCHIVE once under FOLDER and point LINK to it: `unpack_runtime.py ARCHIVE FOLDER LINK`."""

from __future__ import annotations

import sys
from pathlib import Path

from caffe_on_grid.submit import archive


def point(link: Path, target: Path) -> None:
    """Make `link` lead to `target` in one step: whoever uses it meanwhile sees the old target or the new one."""
    new = link.with_name(link.name + ".new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(link)


if __name__ == "__main__":
    packed, folder, link = map(Path, sys.argv[1:])
    point(link, archive.unpack(packed, folder.absolute()).relative_to(link.parent.absolute()))
