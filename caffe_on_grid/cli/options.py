"""The options that set a leaf of JobSpec: one table, from which click's declarations and the option layer are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Callable

import click

from caffe_on_grid.spec import defaults

JOBS = ("train", "test", "submit")


@dataclass(frozen=True)
class Option:
    """One option: the leaf it sets, its words, what --help says."""

    leaf: str
    flags: tuple[str, ...]
    help: str
    metavar: str = "TEXT"
    verbs: tuple[str, ...] = JOBS
    switch: bool = False
    """True: the word alone sets the leaf to true (of two words with a slash between: the second one to false)."""


TRAIN = ("train", "submit")
TEST = ("test", "submit")

OPTIONS: tuple[Option, ...] = (
    Option("data.input", ("-input",), "Take TRAIN records from here instead of the net's source.", "URI", TRAIN),
    Option("output.model", ("-model",), "The model: written by training, read by a test alone.", "URI"),
    Option("output.text", ("-output",), "File for a test's outputs, one `blob: values` line each.", "URI", TEST),
    Option("output.run_folder", ("--run-folder",), "Folder of run.json, metrics, snapshots, logs.", "URI"),
    Option("output.overwrite", ("--overwrite",), "Replace an existing model or output.", switch=True),
    Option("start.weights", ("-weights",), "Copy parameters from these models, by layer name.", "URI[,URI…]", TRAIN),
    Option("start.snapshot", ("-snapshot",), "Resume from this .solverstate.", "URI", TRAIN),
    Option("test_iterations", ("-iterations",), "Batches of a test; else the solver's test_iter.", "N", TEST),
    Option("test_net", ("--test-net",), "Which of the solver's TEST nets a test runs, from 0.", "N", TEST),
    Option(
        "ignore_unknown_fields",
        ("--ignore-unknown-fields",),
        "Leave fields that Caffe lacks out of the prototxts, and list them.",
        switch=True,
    ),
    Option("engine.devices", ("-devices",), "Ranks on each executor, one per device.", "N"),
    Option("engine.name", ("--engine",), "What steps the net."),
    Option("engine.solver_mode", ("--solver-mode",), "Run on CPU or GPU, whatever the prototxt says."),
    Option("engine.allow_python_layers", ("--allow-python-layers",), "Run the net's Python layers.", switch=True),
    Option(
        "engine.strict_caffe",
        ("--strict-caffe",),
        "Let engine torch reproduce the gradients of Caffe's own faults.",
        verbs=TRAIN,
        switch=True,
    ),
    Option("engine.on_nan", ("--on-nan",), "What a loss that is not a number does.", verbs=TRAIN),
    Option("sync.connection", ("-connection",), "Network between ranks; auto leaves it to MPI."),
    Option("sync.net_cidr", ("--net-cidr",), "Network of the ranks' traffic, e.g. 10.1.0.0/16.", "CIDR"),
    Option("sync.check_every", ("--check-every",), "Compare parameters over all ranks every N steps.", "N", TRAIN),
    Option("data.shuffle", ("--shuffle",), "Permute the records in every epoch, or keep their order.", "on|off", TRAIN),
    Option("data.seed", ("--seed",), "Seed of the record stream, and of all else without random_seed.", "N"),
    Option("data.skip_bad_records", ("--skip-bad-records",), "Count undecodable records, go on.", switch=True),
    Option("data.feeders", ("--feeders",), "Feeder processes of each rank.", "N"),
    Option("data.prefetch", ("--prefetch",), "Batches held ready.", "N"),
    Option("runtime.path", ("--runtime",), "The ranks' runtime: an archive or a folder.", "PATH"),
    Option("runtime.blas_core", ("--blas-core",), "OpenBLAS core type; else chosen on each host.", "NAME"),
    Option("runtime.blas_threads", ("--blas-threads",), "BLAS threads of each rank; else its share.", "N"),
    Option("cluster.master", ("--master",), "yarn, local[N], local-cluster[N,CORES,MB] or spark://HOST:PORT.", "URL"),
    Option("cluster.deploy_mode", ("--deploy-mode",), "Where the driver runs."),
    Option("cluster.executors", ("--num-executors", "-clusterSize"), "Executors in the gang.", "N"),
    Option("cluster.executor_cores", ("--executor-cores",), "Cores of each executor.", "N"),
    Option("cluster.executor_memory", ("--executor-memory",), "Memory of each executor.", "SIZE"),
    Option("cluster.driver_memory", ("--driver-memory",), "Memory of the driver.", "SIZE"),
    Option("cluster.queue", ("--queue",), "YARN queue.", "NAME"),
    Option("cluster.name", ("--name",), "Name of the application."),
    Option("cluster.node_label", ("--node-label",), "YARN label of the executors' nodes.", "LABEL"),
    Option("cluster.am_node_label", ("--am-node-label",), "YARN label of the application master's node.", "LABEL"),
    Option("cluster.principal", ("--principal",), "Kerberos principal.", "NAME"),
    Option("cluster.keytab", ("--keytab",), "Kerberos keytab of --principal.", "PATH"),
    Option("cluster.proxy_user", ("--proxy-user",), "User to act for.", "NAME"),
    Option("cluster.properties_file", ("--properties-file",), "Spark's settings, one a line.", "PATH"),
    Option("cluster.conf", ("--conf",), "One of Spark's settings; repeatable.", "KEY=VALUE"),
    Option("cluster.files", ("--files",), "Further files for the executors.", "URI[,URI…]"),
    Option("cluster.archives", ("--archives",), "Further archives for the executors.", "URI[,URI…]"),
    Option("cluster.py_files", ("--py-files",), "Further Python files for driver and executors.", "URI[,URI…]"),
    Option("cluster.gang_timeout_s", ("--gang-timeout",), "Longest wait for all executors.", "DURATION"),
    Option("cluster.step_timeout_s", ("--step-timeout",), "Longest time of one exchange.", "DURATION"),
    Option(
        "cluster.wait",
        ("--wait/--no-wait",),
        "Follow the job to its end, or leave once YARN has it (with --deploy-mode cluster).",
        switch=True,
    ),
)

WITHOUT: dict[str, str] = {
    "cluster.passthrough": "the words after --",
    "data.resize": "nothing resizes yet",
    "sync.strategy": "there is one",
    "sync.bucket_mib": "a matter of the site, set in its configuration file",
}
"""Leaves that no option sets, and why."""

AGREE = ("cluster.executors",)
"""Leaves whose words may be given together only with one value; elsewhere the last one wins."""


def parameter(leaf: str) -> str:
    """click's name of the option that sets `leaf`."""
    return leaf.replace(".", "__")


def declared(verb: str) -> Callable[[Any], Any]:
    """Decorator: the options of `verb`, in the table's order."""

    def decorate(command: Any) -> Any:
        for option in reversed([option for option in OPTIONS if verb in option.verbs]):
            command = _click(option)(command)
        return command

    return decorate


def _click(option: Option) -> Callable[[Any], Any]:
    words = [*option.flags, parameter(option.leaf)]
    if option.switch:
        return click.option(*words, is_flag=True, default=None, help=option.help)
    metavar = "|".join(defaults.CHOICES.get(option.leaf, (option.metavar,)))
    return click.option(*words, multiple=True, metavar=metavar, help=option.help)


def layer(given: Mapping[str, Any], passthrough: tuple[str, ...]) -> defaults.Layer:
    """The layer of what click parsed; click.UsageError names the option and what it expects."""
    known, values, origins = defaults.leaves(), {}, {}
    for option in OPTIONS:
        texts = given.get(parameter(option.leaf))
        if texts is None or texts == ():
            continue
        values[option.leaf] = _value(option, known[option.leaf], texts)
        origins[option.leaf] = f"option {option.flags[0]}"
    if passthrough:
        values["cluster.passthrough"] = passthrough
    return defaults.Layer("option", values, origins)


def _value(option: Option, leaf: defaults.Leaf, texts: Any) -> Any:
    words = "/".join(option.flags)
    try:
        if leaf.type is dict:
            return dict(_pair(text) for text in texts)
        if leaf.type is tuple:
            return tuple(item for text in texts for item in defaults.value(leaf, text))
        read = [defaults.value(leaf, text) for text in ([texts] if option.switch else texts)]
    except ValueError as error:
        raise click.UsageError(f"{words}: {error}") from None
    if option.leaf in AGREE and len(set(read)) > 1:
        raise click.UsageError(f"{' and '.join(option.flags)} are one option, and say {' and '.join(map(str, read))}")
    return read[-1]


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise ValueError(f"expected KEY=VALUE, got {text!r}")
    return key, value
