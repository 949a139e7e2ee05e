"""The verbs that run jobs: train, test, submit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import click

from caffe_on_grid.cli import configuration, options, words
from caffe_on_grid.errors import ContactLost
from caffe_on_grid.spec import defaults


def _job_options(verb: str) -> Callable[[Any], Any]:
    """Decorator: what every job's verb takes."""

    def decorate(command: Any) -> Any:
        for option in reversed(_COMMON):
            command = option(command)
        return click.command(cls=words.Verb, options_metavar="OPTIONS [-- SPARK-SUBMIT WORDS]")(command)

    return lambda command: decorate(options.declared(verb)(command))


_COMMON = (
    click.option("-conf", "solver", metavar="PATH", required=True, help="The solver prototxt."),
    click.option("-net", "net", metavar="PATH", help="Use this net instead of the solver's `net:`."),
    click.option("--profile", metavar="NAME", help="Take a profile of the configuration files."),
    click.option("--dry-run", is_flag=True, help="Print the spark-submit line and run nothing."),
    click.option("--verbose", is_flag=True, help="Explain how the containers' memory comes about."),
    click.option("--json", "as_json", is_flag=True, help="Print the outcome as one JSON object."),
    click.option("--oozie", "oozie", is_flag=True, help="Print what an Oozie shell action captures; there it is so."),
)


@_job_options("train")
@click.pass_context
def train(ctx: click.Context, /, **given: Any) -> None:
    """Train the net of a solver and write its model."""
    _run(ctx, ("train",), given)


@_job_options("test")
@click.pass_context
def test(ctx: click.Context, /, **given: Any) -> None:
    """Evaluate a model on the solver's TEST net."""
    _run(ctx, ("test",), given)


@_job_options("submit")
@click.option("-train", "does_train", is_flag=True, help="Train.")
@click.option("-test", "does_test", is_flag=True, help="Test; after -train, the model just written.")
@click.option("-persistent", "persistent", is_flag=True, help="Accepted; needless.")
@click.option("-lmdb_partitions", "lmdb_partitions", metavar="N", help="Accepted; needless.")
@click.pass_context
def submit(ctx: click.Context, /, does_train: bool, does_test: bool, **given: Any) -> None:
    """Run what a CaffeOnSpark command line asked for, in its own words."""
    for name, remark in words.NEEDLESS.items():
        if given.pop(name):
            _say(remark)
    tasks = (("train",) if does_train else ()) + (("test",) if does_test else ())
    if not tasks:
        raise click.UsageError("say -train, -test or both", ctx)
    _run(ctx, tasks, given)


def _run(ctx: click.Context, tasks: tuple[str, ...], given: Mapping[str, Any]) -> None:
    from caffe_on_grid.submit import start

    settings = configuration.current(given["profile"], options.layer(given, ctx.obj))
    job = defaults.job(settings, tasks, given["solver"])
    if not given["dry_run"] and (given["oozie"] or os.environ.get("OOZIE_ACTION_CONF_XML")):
        ctx.exit(_in_action(job, settings.origins, given))
    with start.workspace(keep=given["dry_run"]) as folder:
        prepared = start.prepare(job, settings.origins, given["net"], folder, os.environ, given["dry_run"], _say)
        for remark in (*prepared.remarks, *(prepared.explained if given["verbose"] else ())):
            _say(remark)
        if given["dry_run"]:
            click.echo(prepared.command.line())
            return
        code = _started(prepared, folder, given["as_json"])
    ctx.exit(code)


def _in_action(job: Any, origins: Mapping[str, str], given: Mapping[str, Any]) -> int:
    """Run `job` as an Oozie shell action wants it run; the exit code."""
    from caffe_on_grid.submit import action

    if given["as_json"]:
        raise click.UsageError("--json: an Oozie shell action captures properties; leave it out")
    os.environ.update(action.found(os.environ))
    here = action.find(os.environ) or action.Action()
    return action.told(lambda: action.execute(job, origins, given["net"], here, _say, os.environ))


def _say(remark: str) -> None:
    from caffe_on_grid.submit import process

    process.say(f"note: {remark}")


def _started(prepared: Any, folder: Any, as_json: bool) -> int:
    from caffe_on_grid.submit import outcome, run, start

    record = run.run(prepared.command, folder, os.environ)
    start.forget(prepared, record.application_id)
    click.echo(outcome.as_json(record) if as_json else record.application_id or record.run_id)
    return ContactLost.exit_code if record.exit_code is None else record.exit_code
