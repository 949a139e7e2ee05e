"""The spark-submit command of a job, as a value. Pure: nothing is looked up, started or written."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Optional
from urllib.parse import quote

from caffe_on_grid.errors import UsageError
from caffe_on_grid.spec.job import Cluster, JobSpec
from caffe_on_grid.storage.runs import RUN_ID
from caffe_on_grid.submit import cluster as clusters
from caffe_on_grid.submit.capacity import Request

ARCHIVE = "caffe_on_grid.tgz"
"""Name under which executors find the runtime."""

DRIVER = "caffe_on_grid_driver.py"
JOB_FOLDER = "job"
JOB_ZIP = "job.zip"
PACKAGE_ZIP = "caffe_on_grid.zip"
OUTCOME = "outcome.json"
LOGGING = "log4j2.properties"
GPUS = "caffe_on_grid_gpus.sh"
"""The script by which Spark's executors find their GPUs."""

TAG = "caffe-on-grid-"
"""What the tag of a followed application begins with."""

TAGS = "spark.yarn.tags"
DISCOVERY = "spark.executor.resource.gpu.discoveryScript"
HEAP_MIB = 512
"""Java heap of an executor on YARN: the JVM starts Python and little else; ranks live beside it."""


@dataclass(frozen=True)
class Site:
    """What was found on the gateway."""

    spark_submit: str
    spark_home: str
    python: str
    """The interpreter that runs this command: driver and Spark's workers, where they are on this machine."""
    folder: str
    """The job's own folder on the gateway: job/, job.zip, the package and the driver script."""
    cores: int = 1
    java_home: Optional[str] = None
    """None: the `java` on PATH."""
    archive: Optional[str] = None
    """The runtime's archive, shipped to a cluster; None: the nodes have the runtime at the job's runtime.path."""
    runtime: Optional[str] = None
    """The unpacked runtime on the gateway."""
    package: Optional[str] = None
    """URI of the package's zip; None: it is in the job's folder."""
    spark: Mapping[str, str] = field(default_factory=dict)
    """Settings that say where Spark's jars were uploaded to."""
    python_archives: Optional[str] = None
    """URIs of Spark's own Python files; None: Spark uploads them."""
    submit_options: str = ""
    """SPARK_SUBMIT_OPTS of the caller: options of spark-submit's JVM."""
    overhead_mib: Optional[int] = None
    """Memory of a YARN container beside the heap; None: Spark's own share."""
    asks_gpus: bool = True
    """Whether YARN can be asked for GPUs; an older one only by label."""
    run_id: Optional[str] = None
    """Name of the run, where this command follows it; None: the driver chooses."""

    def file(self, name: str) -> str:
        """Path of a file in the job's folder."""
        return f"{self.folder}/{name}"


@dataclass(frozen=True)
class Application:
    """A job in YARN, as the gateway follows it."""

    job: JobSpec
    run_id: str
    run_folder: str
    request: Request

    @property
    def tag(self) -> str:
        """By which YARN finds it."""
        return f"{TAG}{self.run_id}"

    @property
    def in_cluster(self) -> bool:
        """Whether the driver is in the cluster."""
        return self.job.cluster.deploy_mode == "cluster"


@dataclass(frozen=True)
class SparkCommand:
    """A program, its arguments, and the variables it needs beside the caller's environment."""

    argv: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)
    application: Optional[Application] = None
    """What must be known to follow it in YARN; None: it is no application of YARN's."""

    def line(self) -> str:
        """One shell-quoted line that runs it; secrets are masked."""
        assignments = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.env.items())]
        return " ".join([*assignments, *(shlex.quote(masked(word)) for word in self.argv)])


_SECRET = re.compile(r"secret|password|passwd|token|credential|access[._-]?key|private[._-]?key", re.IGNORECASE)


def masked(word: str) -> str:
    """`word`, with the value of a `key=value` whose key speaks of a secret replaced by stars."""
    key, sign, value = word.partition("=")
    return f"{key}=********" if sign and value and _SECRET.search(key) else word


def command(job: JobSpec, site: Site) -> SparkCommand:
    """The command that runs `job`, placed by `submit.cluster.place`; UsageError for a --conf that breaks a gang."""
    where = clusters.master(job.cluster.master, site.cores)
    words = [site.spark_submit, *_placement(job, where)]
    for key, value in sorted(confs(job, site, where).items()):
        words += ["--conf", f"{key}={value}"]
    words += [*_shipped(job, site, where), *job.cluster.passthrough, site.file(DRIVER)]
    in_cluster = job.cluster.deploy_mode == "cluster"
    words += ["--job", JOB_FOLDER if in_cluster else site.file(JOB_FOLDER)]
    return SparkCommand(tuple(words), _environment(job, site, where))


def _placement(job: JobSpec, where: clusters.Master) -> Iterator[str]:
    asked = job.cluster
    yield from ("--master", asked.master, "--deploy-mode", asked.deploy_mode)
    yield from ("--name", asked.name or f"caffe-on-grid {'+'.join(job.tasks)}")
    for flag, value in (
        ("--num-executors", str(asked.executors) if where.kind == "yarn" else None),
        ("--executor-cores", str(asked.executor_cores) if asked.executor_cores else None),
        ("--executor-memory", asked.executor_memory or _own_heap(asked, where)),
        ("--driver-memory", asked.driver_memory),
        ("--queue", asked.queue),
        ("--principal", asked.principal),
        ("--keytab", asked.keytab),
        ("--proxy-user", asked.proxy_user),
        ("--properties-file", asked.properties_file),
    ):
        if value is not None:
            yield from (flag, value)


def _own_heap(asked: Cluster, where: clusters.Master) -> Optional[str]:
    own = where.kind == "yarn" and "spark.executor.memory" not in asked.conf
    return f"{HEAP_MIB}m" if own else None


def _shipped(job: JobSpec, site: Site, where: clusters.Master) -> Iterator[str]:
    archives = [f"{_uri(site.file(JOB_ZIP))}#{JOB_FOLDER}"]
    if site.archive and not where.here:
        archives.append(f"{_uri(site.archive)}#{ARCHIVE}")
    yield from ("--py-files", _listed([site.package or site.file(PACKAGE_ZIP), *job.cluster.py_files]))
    yield from ("--archives", _listed([*archives, *job.cluster.archives]))
    files = [*([site.file(GPUS)] if site.asks_gpus and ships_discovery(job, where) else []), *job.cluster.files]
    if files:
        yield from ("--files", _listed(files))


def ships_discovery(job: JobSpec, where: clusters.Master) -> bool:
    """Whether executors need our script to find the GPUs that YARN gives them."""
    return where.kind == "yarn" and job.engine.solver_mode == "gpu" and DISCOVERY not in job.cluster.conf


def _uri(path: str) -> str:
    """A path with a fragment behind it is a URI to Spark: blanks and commas in it are written as %20 and %2C."""
    return path if re.fullmatch(r"[\w./:=@~+-]+", path, re.ASCII) else f"file://{quote(path)}"


def _listed(paths: Iterable[str]) -> str:
    return ",".join(paths)


LOCKED: dict[str, str] = {
    "spark.dynamicAllocation.enabled": "a gang keeps its executors",
    "spark.python.worker.reuse": "a second gang would find the first one's process",
    "spark.speculation": "a rank must not run twice",
    "spark.task.cpus": "each executor runs one task; set --executor-cores",
    "spark.executor.cores": "set --executor-cores",
    "spark.executor.instances": "set --num-executors",
    "spark.cores.max": "set --num-executors and --executor-cores",
    "spark.master": "set --master",
    "spark.submit.deployMode": "set --deploy-mode",
}
"""Settings that a gang cannot live with otherwise, and what to do."""


def confs(job: JobSpec, site: Site, where: clusters.Master) -> dict[str, str]:
    """Spark's settings for the job, the user's own on top."""
    check_confs(job, where)
    return {
        **_gang(job.cluster),
        **(_local(site) if where.here else {"spark.log.level": "WARN"}),
        **(site.spark if where.kind == "yarn" else {}),
        **(_standalone(job.cluster) if where.kind == "standalone" else {}),
        **(_yarn(job, site) if where.kind == "yarn" else {}),
        **job.cluster.conf,
        **(_joined(job, site) if where.kind == "yarn" else {}),
    }


JAVA_OPTIONS = "spark.driver.extraJavaOptions"


def _joined(job: JobSpec, site: Site) -> dict[str, str]:
    """Settings that hold ours beside the user's: a tag by which the application is found, our log configuration."""
    tag = f"{TAG}{site.run_id}" if site.run_id else None
    ours = {TAGS: (job.cluster.conf.get(TAGS), tag, ",")}
    if job.cluster.deploy_mode == "client":
        ours[JAVA_OPTIONS] = (quiet(site), job.cluster.conf.get(JAVA_OPTIONS), " ")
    return {key: sign.join(filter(None, pair)) for key, (*pair, sign) in ours.items() if any(pair)}


def check_confs(job: JobSpec, where: clusters.Master) -> None:
    """UsageError where the user sets one of LOCKED to another value than the gang's."""
    ours = {**_gang(job.cluster), **(_standalone(job.cluster) if where.kind == "standalone" else {})}
    for key, value in job.cluster.conf.items():
        if key in LOCKED and value != ours.get(key):
            wanted = f"it is {ours[key]} here" if key in ours else "it has an option"
            raise UsageError(f"--conf {key}={value}: {wanted}; {LOCKED[key]}")


def _local(site: Site) -> dict[str, str]:
    """Here Spark is a means: no web pages, and a log configuration that leaves its troubles to our own messages."""
    return {
        "spark.driver.extraJavaOptions": quiet(site),
        "spark.executor.extraJavaOptions": quiet(site),
        "spark.ui.enabled": "false",
    }


def quiet(site: Site) -> str:
    """The JVM option that names our log configuration on the gateway."""
    return f"-Dlog4j2.configurationFile=file://{quote(site.file(LOGGING))}"


def _gang(asked: Cluster) -> dict[str, str]:
    """What a barrier stage needs; every wait for executors ends with the gang's timeout."""
    timeout = math.ceil(asked.gang_timeout_s)
    interval = max(1, min(5, timeout // 10))
    return {
        "spark.barrier.sync.timeout": f"{timeout}s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": f"{interval}s",
        "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": str(math.ceil(timeout / interval)),
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{timeout}s",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.dynamicAllocation.enabled": "false",
        "spark.locality.wait": "0s",
        "spark.python.worker.reuse": "false",
        "spark.speculation": "false",
        "spark.task.cpus": str(asked.executor_cores or 1),
        "spark.task.maxFailures": "1",
        "spark.ui.showConsoleProgress": "false",
    }


def _standalone(asked: Cluster) -> dict[str, str]:
    """Standalone masters know no number of executors, only of cores."""
    return {"spark.cores.max": str(asked.executors * (asked.executor_cores or 1))}


def _yarn(job: JobSpec, site: Site) -> dict[str, str]:
    asked, python = job.cluster, _node_python(job, site)
    devices = str(job.engine.devices) if job.engine.solver_mode == "gpu" and site.asks_gpus else None
    in_cluster = asked.deploy_mode == "cluster"
    settings = {
        "spark.yarn.maxAppAttempts": "1",
        "spark.yarn.submit.waitAppCompletion": None if asked.wait else "false",
        "spark.yarn.executor.nodeLabelExpression": asked.node_label,
        "spark.yarn.am.nodeLabelExpression": asked.am_node_label,
        "spark.executorEnv.PYSPARK_PYTHON": python,
        "spark.yarn.appMasterEnv.PYSPARK_PYTHON": python if in_cluster else None,
        "spark.executor.resource.gpu.amount": devices,
        "spark.task.resource.gpu.amount": devices,
        DISCOVERY: f"./{GPUS}" if devices else None,
        "spark.executorEnv.CAFFE_ON_GRID_GPUS": devices,
        "spark.executor.memoryOverhead": f"{site.overhead_mib}m" if site.overhead_mib else None,
        f"spark.yarn.appMasterEnv.{RUN_ID}": site.run_id if in_cluster else None,
    }
    return {key: value for key, value in settings.items() if value is not None}


def _node_python(job: JobSpec, site: Site) -> str:
    """The Python of Spark's workers on YARN's nodes: the runtime's."""
    return f"./{ARCHIVE}/bin/python" if site.archive else f"{job.runtime.path}/bin/python"


def _environment(job: JobSpec, site: Site, where: clusters.Master) -> dict[str, str]:
    env = {"SPARK_HOME": site.spark_home, **_pythons(job, site, where), **_on_yarn(job, site, where)}
    if site.java_home:
        env["JAVA_HOME"] = site.java_home
    return env


def _on_yarn(job: JobSpec, site: Site, where: clusters.Master) -> dict[str, str]:
    if where.kind != "yarn":
        return {}
    in_cluster = job.cluster.deploy_mode == "cluster"
    env = {
        "PYSPARK_ARCHIVES_PATH": site.python_archives,
        RUN_ID: site.run_id,
        "SPARK_SUBMIT_OPTS": f"{site.submit_options} {quiet(site)}".strip() if in_cluster else None,
    }
    return {name: value for name, value in env.items() if value}


def _pythons(job: JobSpec, site: Site, where: clusters.Master) -> Mapping[str, str]:
    """Driver and Spark's workers run one Python: this one where they are here, the runtime's on YARN."""
    if where.kind != "yarn":
        return {"PYSPARK_PYTHON": site.python, "PYSPARK_DRIVER_PYTHON": site.python}
    if job.cluster.deploy_mode == "cluster":
        return {"PYSPARK_PYTHON": _node_python(job, site)}
    return {"PYSPARK_PYTHON": _node_python(job, site), "PYSPARK_DRIVER_PYTHON": f"{site.runtime}/bin/python"}
