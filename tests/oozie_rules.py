"""What Oozie does with a workflow, ported for tests: its schemas, its splitting of spark-opts, Java's properties."""

from __future__ import annotations

import re
from pathlib import Path

from lxml import etree

SCHEMAS = Path(__file__).parent / "data" / "oozie"
NAMES = ("oozie-workflow-1.0", "spark-action-1.0", "shell-action-1.0")
XS = "http://www.w3.org/2001/XMLSchema"
SPACES = {"w": "uri:oozie:workflow:1.0", "spark": "uri:oozie:spark-action:1.0", "shell": "uri:oozie:shell-action:1.0"}


def schema(folder: Path = SCHEMAS) -> etree.XMLSchema:
    """Oozie's schemas as one: each has a target namespace of its own."""
    top = etree.Element(f"{{{XS}}}schema")
    for name in NAMES:
        path = str(folder / f"{name}.xsd")
        space = etree.parse(path).getroot().get("targetNamespace")
        etree.SubElement(top, f"{{{XS}}}import", namespace=space, schemaLocation=path)
    return etree.XMLSchema(top)


def validated(text: str) -> etree._Element:
    """The workflow, once Oozie's schemas have taken it."""
    root = etree.fromstring(text.encode())
    found = schema()
    assert found.validate(root), f"{found.error_log}\n{text}"
    return root


def texts(root: etree._Element, kind: str, tag: str) -> list[str]:
    """The texts of an action's elements, trimmed as Oozie trims them (getTextTrim)."""
    return [str(element.text).strip() for element in root.iterfind(f".//{kind}:{tag}", SPACES)]


_KEY = re.compile(r"\s*--[a-zA-Z0-9.]+[\-a-zA-Z0-9.]*[=]?", re.ASCII)
_ENDS = re.compile(r'([a-zA-Z0-9.]+=)?".+"')
_BETWEEN = re.compile(r'([a-zA-Z0-9.]+=)?".*".*"')


def split(opts: str) -> list[str]:
    """SparkOptionsSplitter.splitSparkOpts of Oozie 5.2.1, statement by statement."""
    result: list[str] = []
    start = 0
    for match in _KEY.finditer(opts):
        if start > 0 and trimmed(opts[start : match.start()]):
            result.append(_unquoted(trimmed(opts[start : match.start()])))
        option = trimmed(match[0])
        result.append(option.replace("=", "") if option.endswith("=") else option)
        start = match.end()
    if trimmed(opts[start:]):
        result.append(_unquoted(trimmed(opts[start:])))
    return result


def trimmed(text: str) -> str:
    """Java's String.trim."""
    return text.strip("".join(map(chr, range(33))))


def _unquoted(value: str) -> str:
    whole = _ENDS.fullmatch(value) and not _BETWEEN.fullmatch(value)
    return value.replace('"', "") if whole else value


def split_4(opts: str) -> list[str]:
    """SparkMain.splitSparkOpts of Oozie 4.3: blanks part, double quotes group and vanish."""
    result, word, inside = [], "", False
    for letter in opts:
        if letter == '"':
            inside = not inside
        elif letter.isspace() and not inside:
            result += [word] if word else []
            word = ""
        else:
            word += letter
    return [*result, word] if word else result


def properties(text: str) -> dict[str, str]:
    """java.util.Properties.load, for texts without continued lines."""
    found = {}
    for line in text.splitlines():
        if line.strip() and line.lstrip()[0] not in "#!":
            match = re.match(r"\s*((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", line)
            assert match, line
            found[_plain(match[1])] = _plain(match[2])
    return found


_LETTERS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f"}


def _plain(text: str) -> str:
    def one(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _LETTERS.get(match[2], match[2])

    escaped = re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", one, text)
    return escaped.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
