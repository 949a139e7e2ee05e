"""The documents' links lead somewhere, and nothing in the repository speaks of the place where it was written."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
REGISTRIES = re.compile(
    "|".join(
        (
            r"pypi" + r"\.org",
            r"deb\." + "debian",
            r"registry\." + "npmjs",
            r"repo1?\." + r"maven",
            "pythonhosted" + r"\.org",
        )
    )
)
WORKPLACE = re.compile("|".join(("/" + "work/", r"shared/(recipes|reference|golden)", "/tmp/" + "rt")))


def repository_files(*patterns: str) -> list[Path]:
    """Files that are, or are about to be, under version control; a folder without git is looked through as it is."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return sorted(path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file())


def anchors(document: Path) -> set[str]:
    """The anchors of a document's headings, made as code hosts make them."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", document.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(document: Path) -> list[str]:
    """The links of `document` that lead to no file, or to no heading of one."""
    broken = []
    for link in LINK.findall(FENCE.sub("", document.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = unquote(link).partition("#")
        target = (document.parent / name).resolve() if name else document
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            broken.append(link)
    return broken


DOCUMENTS = repository_files("*.md")


def test_there_are_documents() -> None:
    assert ROOT / "README.md" in DOCUMENTS


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_resolve(document: Path) -> None:
    assert broken_links(document) == []


def test_a_broken_link_is_seen(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "# One two\n[x](#one-two) [y](#three) [z](gone.md) [a](a.md) [w](https://example.org/)\n```\n[c](d)\n```\n"
    )
    assert broken_links(document) == ["#three", "gone.md"]


def test_no_file_names_the_workplace() -> None:
    texts = {path: path.read_bytes().decode("utf-8", errors="ignore") for path in repository_files()}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if WORKPLACE.search(text)] == []


def test_no_file_names_a_registry() -> None:
    texts = {path: path.read_bytes().decode("utf-8", errors="ignore") for path in repository_files()}
    assert [str(path.relative_to(ROOT)) for path, text in texts.items() if REGISTRIES.search(text)] == []


def test_makefile_targets_are_documented() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {"demo", "test", "check", "bench", "archive", "wheel"} <= set(targets)
    assert {"demo", "test"} <= set(re.findall(r"make ([a-z-]+)", readme))
