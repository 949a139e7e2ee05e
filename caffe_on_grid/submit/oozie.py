"""An Oozie workflow of one action, as text: spark-action 1.0 or shell-action 1.0. Pure: nothing is read or written.

Where the texts follow Oozie's code (release 5.2.1), its class is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Optional
from xml.etree import ElementTree

from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec import defaults, units
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.submit import action, argv, properties

WORKFLOW = "uri:oozie:workflow:1.0"
SPACES = {"spark": "uri:oozie:spark-action:1.0", "shell": "uri:oozie:shell-action:1.0"}
SCRIPT = "caffe-on-grid.sh"
QUEUE = "${queueName}"
LAUNCHER_MIB = 2048
"""A shell action's launcher: its own JVM and spark-submit's; a driver in there comes on top."""

DRIVER_MEMORY = "1g"
"""Spark's default."""

Element = ElementTree.Element


@dataclass(frozen=True)
class Parts:
    """What an action needs beside the job."""

    archives: tuple[str, ...] = ()
    """URIs with #names, relative ones below the application's folder: Oozie unpacks and links them."""
    files: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables of a shell action."""


def workflow(name: str, step: str, body: Element, fresh: Optional[str] = None) -> str:
    """The text of workflow.xml: start, the one action `step`, its two ends.

    `fresh`: an HDFS URI that must not exist; the workflow looks before the action."""
    app = ElementTree.Element("workflow-app", {"xmlns": WORKFLOW, "name": name})
    app.append(ElementTree.Comment(_WORDS[body.tag]))
    _add(app, "start", to="look" if fresh else step)
    if fresh:
        _look(app, step, fresh)
    node = _add(app, "action", name=step)
    node.append(body)
    _add(node, "ok", to="end")
    _add(node, "error", to="failed")
    _add(_add(app, "kill", name="failed"), "message", f"{step}: ${{wf:errorMessage(wf:lastErrorNode())}}")
    if fresh:
        message = f"{fresh} exists; remove it, or render the workflow with another -model or --overwrite"
        _add(_add(app, "kill", name="exists"), "message", message)
    _add(app, "end", name="end")
    ElementTree.indent(app)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(app, encoding="unicode") + "\n"


def _look(app: Element, step: str, uri: str) -> None:
    """A decision: on to `step` unless `uri` exists. Oozie's fs:exists wants the NameNode named."""
    quoted = "'" + uri.replace("\\", "\\\\").replace("'", "\\'") + "'"
    place = f"concat(nameNode, {quoted.replace('hdfs://', '', 1)})" if uri.startswith("hdfs:///") else quoted
    switch = _add(_add(app, "decision", name="look"), "switch")
    _add(switch, "case", f"${{fs:exists({place})}}", to="exists")
    _add(switch, "default", to=step)


_CREDENTIALS = """ On a cluster with Kerberos Oozie gives the action delegation tokens of the NameNode and of YARN; for
       further NameNodes set oozie.launcher.mapreduce.job.hdfs-servers, for Hive or HBase add <credentials>. """

_WORDS = {
    "spark": f""" Rendered by caffe-on-grid. The job is job.zip; what it writes is fixed in there. Oozie gives the
       application its tag, and on a retry ends the one of the earlier attempt.
      {_CREDENTIALS}""",
    "shell": f""" Rendered by caffe-on-grid. The arguments are keys of its configuration file, and may be changed here.
       Later nodes read what is captured: ${{wf:actionData('NAME')['accuracy']}}; application_id, exit_code, model too.
      {_CREDENTIALS}""",
}


def _add(parent: Element, tag: str, text: Optional[str] = None, **attributes: str) -> Element:
    child = ElementTree.SubElement(parent, tag, attributes)
    if text is not None:
        child.text = checked(text)
    return child


_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\r\n\x85\u2028\u2029\ufffe\uffff]")


def checked(text: str) -> str:
    """`text`; UsageError where it cannot stand in a workflow: Oozie trims it, and XML has no control characters."""
    if _FORBIDDEN.search(text):
        raise UsageError(f"{text!r}: a workflow can hold no line breaks or control characters")
    if text != text.strip() or not text:
        raise UsageError(f"{text!r}: Oozie drops blanks at the ends of a text, and empty texts")
    if argv.masked(text) != text and "${" not in text:
        raise UsageError(
            f"{argv.masked(text)}: a secret in a workflow can be read by all; put ${{NAME}} there, and NAME elsewhere"
        )
    return text


def _begun(kind: str, memory_mib: Optional[int] = None) -> Element:
    body = ElementTree.Element(kind, {"xmlns": SPACES[kind]})
    _add(body, "resource-manager", "${resourceManager}")
    _add(body, "name-node", "${nameNode}")
    launcher = _add(body, "launcher")
    if memory_mib:
        _add(launcher, "memory.mb", str(memory_mib))
    _add(launcher, "queue", QUEUE)
    return body


def _listed(body: Element, tag: str, texts: Iterable[str]) -> None:
    for text in texts:
        _add(body, tag, text)


# --- The spark action ----------------------------------------

MOVED = {"--master": "master", "--deploy-mode": "mode", "--name": "name", "--files": "file", "--archives": "archive"}
"""Options of spark-submit that have an element: --files and --archives in spark-opts lose their #names (SparkMain)."""


def spark(command: argv.SparkCommand, parts: Parts) -> Element:
    """The spark action that runs `command`, the job's own files in which are named `./NAME`: see `own_files`."""
    at = next(place for place, word in enumerate(command.argv) if word == _OWN + argv.DRIVER)
    moved, words = _sorted(command.argv[1:at])
    body = _begun("spark")
    for element in ("master", "mode", "name"):
        _listed(body, element, moved[element])
    _add(body, "jar", argv.DRIVER)
    _add(body, "spark-opts", spark_opts([*words, *_pythons(command.env)]))
    _listed(body, "arg", command.argv[at + 1 :])
    _listed(body, "file", [*(uri for uri in moved["file"] if not uri.startswith(_OWN)), *parts.files])
    _listed(body, "archive", [*(_bare(uri) for uri in moved["archive"]), *parts.archives])
    return body


_OWN = "./"


def own_files(command: argv.SparkCommand) -> list[str]:
    """Names of the job's own files that `command` ships or starts: they lie in lib/, which Oozie hands to --files, but
    for the archives, which lie beside workflow.xml."""
    shipped = (value for flag, value in zip(command.argv, command.argv[1:]) if flag in _SHIPS)
    uris = [uri.partition("#")[0] for value in shipped for uri in value.split(",")]
    return [argv.DRIVER, *(uri[len(_OWN) :] for uri in uris if uri.startswith(_OWN))]


def _bare(uri: str) -> str:
    return uri[len(_OWN) :] if uri.startswith(_OWN) else uri


_SHIPS = ("--files", "--archives", "--py-files")


def _sorted(words: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
    """The values of MOVED options by element, and the other words but what names our log configuration."""
    moved: dict[str, list[str]] = {element: [] for element in MOVED.values()}
    rest: list[str] = []
    found = iter(words)
    for word in found:
        if word in MOVED:
            value = next(found)
            moved[MOVED[word]] += value.split(",") if MOVED[word] in ("file", "archive") else [value]
        elif f"/{argv.LOGGING}" in word:
            rest.pop()  # the --conf before it: in a launcher Oozie configures the log
        else:
            rest.append(word)
    return moved, rest


def _pythons(env: Mapping[str, str]) -> Iterator[str]:
    """The Pythons as Spark's settings: a spark action has no variables."""
    for name, key in (
        ("PYSPARK_PYTHON", "spark.pyspark.python"),
        ("PYSPARK_DRIVER_PYTHON", "spark.pyspark.driver.python"),
    ):
        if name in env:
            yield from ("--conf", f"{key}={env[name]}")


_OPTION = re.compile(r"--[a-zA-Z0-9.]+[a-zA-Z0-9.-]*\Z", re.ASCII)
_LIKE_OPTION = re.compile(r"--[a-zA-Z0-9.]", re.ASCII)


def spark_opts(words: Sequence[str]) -> str:
    """One text that Oozie splits into `words` again (SparkOptionsSplitter): options, each with at most one value.

    A value with blanks is quoted as a whole, which Oozie 4, where only blanks and double quotes count, reads alike.
    UsageError for what no quoting keeps: double quotes, and what looks like an option inside of a value.
    """
    texts, before = [], False
    for word in words:
        option = bool(_OPTION.match(word))
        if not option and not before:
            raise UsageError(f"{word}: in an Oozie workflow every word to spark-submit is an option or follows one")
        texts.append(word if option else _value(word))
        before = option
    return " ".join(texts)


def _value(word: str) -> str:
    checked(word)
    if '"' in word:
        raise UsageError(f"{word}: Oozie's spark-opts cannot hold a double quote")
    if _LIKE_OPTION.search(word):
        raise UsageError(f"{word}: Oozie would take what follows the two dashes for an option of spark-submit")
    return f'"{word}"' if re.search(r"\s", word) else word


# --- The shell action ----------------------------------------


def shell(job: JobSpec, parts: Parts) -> Element:
    """The shell action that runs `job` with SCRIPT."""
    body = _begun("shell", _launcher_mib(job))
    _add(body, "exec", SCRIPT)
    _listed(body, "argument", arguments(job))
    _listed(body, "env-var", [f"{name}={value}" for name, value in parts.env.items()])
    _listed(body, "file", parts.files)
    _listed(body, "archive", parts.archives)
    _add(body, "capture-output")
    return body


def _launcher_mib(job: JobSpec) -> int:
    inside = job.cluster.deploy_mode == "client"
    return LAUNCHER_MIB + (units.mebibytes(job.cluster.driver_memory or DRIVER_MEMORY) if inside else 0)


ALWAYS = ("cluster.master", "cluster.deploy_mode", "cluster.executors")
"""Leaves that stand among the arguments though they have their default."""


def arguments(job: JobSpec) -> list[str]:
    """What `submit.action` reads as `job`, its tasks and solver excepted: every leaf that is not as built in."""
    words: list[str] = []
    for leaf in defaults.leaves().values():
        value = _leaf(job, leaf.name)
        if leaf.name in ("cluster.passthrough", defaults.SPARK_CONF) or value is None:
            continue
        if value != leaf.default or leaf.name in ALWAYS:
            words.append(f"{leaf.name}={_text(value)}")
    words += [f"{action.SPARK_CONF}{key}={value}" for key, value in sorted(job.cluster.conf.items())]
    return [*words, *(["--", *job.cluster.passthrough] if job.cluster.passthrough else [])]


def _leaf(job: JobSpec, name: str) -> Any:
    section, _, entry = name.rpartition(".")
    return getattr(getattr(job, section) if section else job, entry)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value!r}s" if isinstance(value, float) else str(value)


def script(python: str) -> str:
    """The program of the shell action: `python` runs this package from its zip. HOME is not needed."""
    return f"""#!/bin/sh
# Run by Oozie's shell action, in the folder where it has put the files of lib/.
PYTHONPATH="$PWD/{argv.PACKAGE_ZIP}" PYTHONNOUSERSITE=1 PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH PYTHONNOUSERSITE PYTHONDONTWRITEBYTECODE
exec {python} -m {action.__name__} "$@"
"""


# --- job.properties ----------------------------------------


def job_properties(kind: str, folder: str, known: Mapping[str, str], queue: str, home: Optional[str] = None) -> str:
    """The text of job.properties; `folder` is the application's name on HDFS, `known` the Hadoop configuration.

    `home`: SPARK_HOME of a shell action."""
    manager, host = "yarn.resourcemanager.address", "yarn.resourcemanager.hostname"
    places = {
        "nameNode": known.get("fs.defaultFS", "hdfs://NAMENODE:8020"),
        "resourceManager": known.get(manager) or f"{known.get(host, 'RESOURCEMANAGER')}:8032",
        "queueName": queue,
        **({"sparkHome": home} if home else {}),
    }
    application = "${nameNode}/user/${user.name}/" + folder
    return "".join(
        [
            f"# Once:  hdfs dfs -put {folder} /user/$USER/{folder}\n",
            f"# Run:   oozie job -config {folder}/job.properties -run\n",
            properties.dumps(places),
            "oozie.use.system.libpath=true\n",
            _SHARELIB[kind],
            properties.line("oozie.wf.application.path", application),
        ]
    )


_SHARELIB = {
    "spark": "# The sharelib's Spark must be 3.5 or 4; a site may have it under another name:\n"
    "# oozie.action.sharelib.for.spark=spark3\n",
    "shell": "# The launcher's node must have a Spark client; sparkHome, where the workflow has it, says where.\n",
}
