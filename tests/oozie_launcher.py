"""An Oozie launcher for tests: a shell action's container and process, made as JavaActionExecutor and ShellMain do."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

import oozie_rules

SETTINGS = {"oozie.job.launch.time": "1764444000000", "user.name": "ada"}


@dataclass(frozen=True)
class Launcher:
    """The container of the action in a workflow application at `application`."""

    application: Path
    container: Path
    variables: Mapping[str, str]
    """What job.properties says, and what the workflow's functions give: by the text in the braces."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """More of the action's configuration."""

    def start(self, env: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start the action's command with `env` of the NodeManager, which has no HOME."""
        workflow = oozie_rules.validated((self.application / "workflow.xml").read_text())
        self._localise(oozie_rules.texts(workflow, "shell", "archive"))
        pairs = (self._evaluated(text).split("=", 1) for text in oozie_rules.texts(workflow, "shell", "env-var"))
        (program,) = oozie_rules.texts(workflow, "shell", "exec")
        argv = [program, *map(self._evaluated, oozie_rules.texts(workflow, "shell", "argument"))]
        variables = {
            **{name: value for name, value in env.items() if name != "HOME"},
            "PATH": f".:{env['PATH']}",
            "PWD": str(self.container),
            **dict(pairs),
            "OOZIE_ACTION_CONF_XML": str(self._document()),
        }
        return subprocess.Popen(
            [f"./{argv[0]}", *argv[1:]],
            cwd=self.container,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def spark_words(self, home: str) -> list[str]:
        """What SparkMain gives to spark-submit for a spark action whose application lies at `home` on HDFS
        (SparkArgsExtractor.extract)."""
        workflow = oozie_rules.validated((self.application / "workflow.xml").read_text())
        self._localise([])
        texts = {
            tag: [self._evaluated(text) for text in oozie_rules.texts(workflow, "spark", tag)]
            for tag in ("master", "mode", "name", "jar", "spark-opts", "arg", "file", "archive")
        }
        (jar,) = texts["jar"]
        lib = sorted(path.name for path in (self.application / "lib").iterdir())
        files = [*(f"{home}/lib/{name}#{name}" for name in lib if name != jar), *texts["file"]]
        archives = [uri if ":" in uri else f"{home}/{uri}" for uri in texts["archive"]]
        return [
            *("--master", *texts["master"], "--deploy-mode", *texts["mode"], "--name", *texts["name"]),
            *oozie_rules.split(*texts["spark-opts"]),
            *("--conf", "spark.executor.extraClassPath=$PWD/*", "--conf", "spark.driver.extraClassPath=$PWD/*"),
            *("--conf", f"spark.yarn.tags={self.settings['oozie.child.mapreduce.job.tags']}"),
            *("--conf", "spark.yarn.security.tokens.hadoopfs.enabled=false"),
            *("--files", ",".join(files), "--archives", ",".join(archives), "--verbose", jar, *texts["arg"]),
        ]

    def run(self, env: Mapping[str, str], timeout: float = 200) -> tuple[int, str, str]:
        """The command's code, stdout and stderr."""
        process = self.start(env)
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err

    def _localise(self, archives: list[str]) -> None:
        """The files of lib/ as links that nobody may write; archives are expected to be folders here."""
        self.container.mkdir()
        for path in (self.application / "lib").iterdir():
            path.chmod(0o555)
            (self.container / path.name).symlink_to(path)
        for text in archives:
            uri, _, name = self._evaluated(text).partition("#")
            (self.container / name).symlink_to(uri)

    def _evaluated(self, text: str) -> str:
        """The text with its expressions evaluated; one that is unknown is an error, as in Oozie."""
        known = {f"${{{name}}}": value for name, value in self.variables.items()}
        return re.sub(r"\$\{[^}]*\}", lambda match: self._evaluated(known[match[0]]), text)

    def _document(self) -> Path:
        pairs = {**SETTINGS, **self.settings}
        rows = (f"<property><name>{n}</name><value>{escape(v)}</value></property>" for n, v in pairs.items())
        path = self.container / "action.xml"
        path.write_text(f'<?xml version="1.0" encoding="UTF-8"?><configuration>{"".join(rows)}</configuration>')
        return path
