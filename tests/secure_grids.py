"""A grid with Kerberos: a KDC of Debian's, secure HDFS and YARN, on ports of its own beside the plain grid.

Its daemons are this process's children and end with it. Containers run as this user (DefaultContainerExecutor).
"""

from __future__ import annotations

import ctypes
import getpass
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

from grids import QUICK_JVM, ROOT, SCRIPT, Grid

REALM = "GRID.TEST"
KDC_PORT = 17088
LIFE_S = {"ticket": 10 * 3600, "renewable": 7 * 24 * 3600}
SERVICES = ("nn", "dn", "rm", "nm", "HTTP")
USERS = ("ada", "gate", "bob")
"""gate may act for others."""
PACKAGES = (
    "krb5-kdc",
    "krb5-admin-server",
    "krb5-user",
    "libkadm5srv-mit12",
    "libkadm5clnt-mit12",
    "libkdb5-10",
    "libgssrpc4",
    "libverto1",
    "libverto-libev1",
    "libev4",
    "libkrb5-3",
    "libgssapi-krb5-2",
    "libkrb5support0",
    "libk5crypto3",
)
HDFS, WEB, YARN_WEB = "localhost:17000", "localhost:17870", "localhost:17080"
JVM = (*QUICK_JVM.split(), "-Xmx256m", "--add-opens=java.base/java.lang=ALL-UNNAMED")
DAEMONS = {
    "namenode": "org.apache.hadoop.hdfs.server.namenode.NameNode",
    "datanode": "org.apache.hadoop.hdfs.server.datanode.DataNode",
    "resourcemanager": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "nodemanager": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
_PR_SET_PDEATHSIG = 1


def settings(home: Path) -> dict[str, dict[str, str]]:
    """The configuration files: name → settings."""
    keytab = str(home / "services.keytab")
    web = {"principal": f"HTTP/localhost@{REALM}", "keytab": keytab}
    rules = [f"RULE:[2:$1@$0]({short}@{REALM})s/.*/{getpass.getuser()}/" for short in SERVICES if short != "HTTP"]
    core = {
        "fs.defaultFS": f"hdfs://{HDFS}",
        "hadoop.tmp.dir": str(home / "tmp"),
        "hadoop.security.authentication": "kerberos",
        "hadoop.security.authorization": "true",
        "hadoop.rpc.protection": "authentication",
        "hadoop.http.filter.initializers": "org.apache.hadoop.security.AuthenticationFilterInitializer",
        "hadoop.http.authentication.type": "kerberos",
        "hadoop.http.authentication.kerberos.principal": web["principal"],
        "hadoop.http.authentication.kerberos.keytab": keytab,
        "hadoop.http.authentication.signature.secret.file": str(home / "signature"),
        # services are the superuser's; people are themselves
        "hadoop.security.auth_to_local": " ".join([*rules, "DEFAULT"]),
        "hadoop.proxyuser.gate.hosts": "*",
        "hadoop.proxyuser.gate.users": "bob",
    }
    hdfs = {
        "dfs.replication": "1",
        "dfs.namenode.name.dir": f"file://{home}/nn",
        "dfs.datanode.data.dir": f"file://{home}/dn",
        "dfs.namenode.rpc-address": HDFS,
        "dfs.namenode.http-address": WEB,
        "dfs.datanode.address": "localhost:17866",
        "dfs.datanode.ipc.address": "localhost:17867",
        "dfs.datanode.http.address": "localhost:17864",
        "dfs.datanode.hostname": "localhost",
        "dfs.namenode.safemode.extension": "0",
        "dfs.block.access.token.enable": "true",
        "dfs.data.transfer.protection": "authentication",
        # no privileged ports, and no certificates for HTTPS
        "ignore.secure.ports.for.testing": "true",
        "dfs.web.authentication.kerberos.principal": web["principal"],
        "dfs.web.authentication.kerberos.keytab": keytab,
    }
    for name, short in (("namenode", "nn"), ("datanode", "dn")):
        hdfs[f"dfs.{name}.kerberos.principal"] = f"{short}/localhost@{REALM}"
        hdfs[f"dfs.{name}.keytab.file"] = keytab
    yarn = {
        "yarn.resourcemanager.address": "localhost:17032",
        "yarn.resourcemanager.scheduler.address": "localhost:17030",
        "yarn.resourcemanager.resource-tracker.address": "localhost:17031",
        "yarn.resourcemanager.admin.address": "localhost:17033",
        "yarn.resourcemanager.webapp.address": YARN_WEB,
        "yarn.resourcemanager.nodemanagers.heartbeat-interval-ms": "200",
        "yarn.scheduler.minimum-allocation-mb": "128",
        "yarn.scheduler.maximum-allocation-mb": "6144",
        "yarn.nodemanager.address": "localhost:17041",
        "yarn.nodemanager.localizer.address": "localhost:17040",
        "yarn.nodemanager.webapp.address": "localhost:17042",
        "yarn.nodemanager.local-dirs": str(home / "nm" / "local"),
        "yarn.nodemanager.log-dirs": str(home / "nm" / "logs"),
        "yarn.nodemanager.resource.memory-mb": "6144",
        "yarn.nodemanager.resource.cpu-vcores": "6",
        "yarn.nodemanager.vmem-check-enabled": "false",
        "yarn.nodemanager.process-kill-wait.ms": "500",
        "yarn.nodemanager.disk-health-checker.enable": "false",
        "yarn.resourcemanager.principal": f"rm/localhost@{REALM}",
        "yarn.resourcemanager.keytab": keytab,
        "yarn.nodemanager.principal": f"nm/localhost@{REALM}",
        "yarn.nodemanager.keytab": keytab,
    }
    for short in ("resourcemanager", "nodemanager"):
        yarn[f"yarn.{short}.webapp.spnego-principal"] = web["principal"]
        yarn[f"yarn.{short}.webapp.spnego-keytab-file"] = keytab
    scheduler = {
        "yarn.scheduler.capacity.root.queues": "default",
        "yarn.scheduler.capacity.root.default.capacity": "100",
        "yarn.scheduler.capacity.maximum-am-resource-percent": "1.0",
        "yarn.scheduler.capacity.node-locality-delay": "0",
    }
    return {
        "core-site.xml": core,
        "hdfs-site.xml": hdfs,
        "yarn-site.xml": yarn,
        "capacity-scheduler.xml": scheduler,
        # as in the plain grid: the jars come without these policies, which authorization wants
        "hadoop-policy.xml": {"security.client.protocol.acl": "*"},
    }


@dataclass
class SecureGrid:
    """Start it with `start`, end it with `stop`."""

    plain: Grid
    """Its jars are used."""
    home: Path = ROOT / ".cache" / "grid-secure"
    hdfs: str = f"hdfs://{HDFS}"
    webhdfs: str = f"webhdfs://{WEB}"
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def conf(self) -> Path:
        return self.home / "conf"

    @property
    def krb5(self) -> Path:
        """Kerberos' programs, unpacked once."""
        return ROOT / ".cache" / "krb5"

    @property
    def krb5_conf(self) -> Path:
        return self.home / "krb5.conf"

    def keytab(self, user: str) -> Path:
        return self.home / f"{user}.keytab"

    def environment(self) -> dict[str, str]:
        """What a gateway's shell has, but for a ticket."""
        return {
            **self.plain.environment(),
            "HADOOP_CONF_DIR": str(self.conf),
            "KRB5_CONFIG": str(self.krb5_conf),
            "SPARK_SUBMIT_OPTS": f"{QUICK_JVM} -Djava.security.krb5.conf={self.krb5_conf}",
            "PATH": f"{self.krb5}/usr/bin:{os.environ['PATH']}",
        }

    def has_kdc(self) -> bool:
        """Whether Kerberos' programs are unpacked."""
        return (self.krb5 / "usr" / "sbin" / "krb5kdc").exists()

    def start(self) -> None:
        """All of it, from nothing."""
        self.plain.script("jars")
        if not self.has_kdc():
            _unpack_krb5(self.krb5)
        shutil.rmtree(self.home, ignore_errors=True)
        self._write()
        try:
            self._start_kdc()
            self._start_hadoop()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        for name in reversed(list(self.daemons)):
            self.daemons[name].terminate()
        deadline = time.monotonic() + 8
        for daemon in self.daemons.values():
            try:
                daemon.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        self.daemons.clear()

    def kinit(self, user: str, cache: Path, *options: str) -> None:
        """A ticket for `user` in `cache`, by the keytab that stands for a password."""
        words = ["kinit", "-c", str(cache), "-k", "-t", str(self.keytab(user)), *options, f"{user}@{REALM}"]
        self._tool(words)

    def fs(self, cache: Path, *args: str) -> str:
        return self.client(cache, "org.apache.hadoop.fs.FsShell", *args)

    def client(self, cache: Path, *args: str) -> str:
        """A Hadoop client in Java with the ticket in `cache`."""
        done = subprocess.run(
            self._java(*args), env={**self.environment(), "KRB5CCNAME": str(cache)}, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{args}: {done.stdout}{done.stderr}"
        return done.stdout

    def logs(self) -> str:
        """The ends of all logs of daemons and containers."""
        files = [*sorted(self.home.glob("log/*")), *sorted(self.home.glob("nm/logs/*/*/*"))]
        return "\n".join(f"=== {file}\n{file.read_text(errors='replace')[-3000:]}" for file in files if file.is_file())

    def _write(self) -> None:
        for folder in (self.conf / "webapps" / "hdfs", self.conf / "webapps" / "datanode", self.home / "log"):
            folder.mkdir(parents=True)
        for name, values in settings(self.home).items():
            rows = "".join(
                f"<property><name>{k}</name><value>{escape(v)}</value></property>" for k, v in values.items()
            )
            (self.conf / name).write_text(f"<configuration>{rows}</configuration>")
        shutil.copy(SCRIPT.parent / "conf" / "log4j.properties", self.conf)
        (self.home / "signature").write_text(os.urandom(32).hex())
        (self.home / "signature").chmod(0o600)
        self.krb5_conf.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
            f" rdns = false\n udp_preference_limit = 1\n ticket_lifetime = 10h\n renew_lifetime = 7d\n"
            f" plugin_base_dir = {_libraries(self.krb5)}/krb5/plugins\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{KDC_PORT}\n }}\n"
            f"[dbmodules]\n db_module_dir = {_libraries(self.krb5)}/krb5/plugins/kdb\n"
        )
        (self.home / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{KDC_PORT}\n kdc_tcp_listen = 127.0.0.1:{KDC_PORT}\n"
            f"[realms]\n {REALM} = {{\n database_name = {self.home}/principal\n key_stash_file = {self.home}/stash\n"
            f" max_life = {LIFE_S['ticket']}s\n max_renewable_life = {LIFE_S['renewable']}s\n"
            f" supported_enctypes = aes256-cts-hmac-sha1-96:normal\n }}\n"
        )

    def _start_kdc(self) -> None:
        self._tool(["kdb5_util", "create", "-s", "-r", REALM, "-P", os.urandom(8).hex()])
        made = [(f"{name}/localhost", "services") for name in SERVICES] + [(name, name) for name in USERS]
        rows = [f"addprinc -randkey {name}" for name, _ in made]
        rows += [f"ktadd -k {self.keytab(keytab)} {name}" for name, keytab in made]
        self._tool(["kadmin.local", "-r", REALM], "\n".join(rows))
        self._launch("krb5kdc", [f"{self.krb5}/usr/sbin/krb5kdc", "-n"], self._tools_environment())
        self._await("the KDC", lambda: self.kinit("ada", self.home / "probe"))

    def _start_hadoop(self) -> None:
        environment = self.environment()
        format_nn = self._java(DAEMONS["namenode"], "-format", "-nonInteractive")
        with (self.home / "log" / "format.log").open("wb") as log:
            subprocess.run(format_nn, env=environment, stdout=log, stderr=log, check=True)
        for name, main in DAEMONS.items():
            self._launch(name, self._java(main), environment)
        admin = self.home / "admin"
        self._tool(["kinit", "-c", str(admin), "-k", "-t", str(self.keytab("services")), f"nn/localhost@{REALM}"])
        self._await("HDFS", lambda: self._logged("namenode", "BLOCK* registerDatanode"))
        self._await("YARN", lambda: self._logged("resourcemanager", "registered with capability"))
        self.fs(admin, "-mkdir", "-p", *(f"/user/{name}" for name in USERS))
        for name in USERS:
            self.fs(admin, "-chown", name, f"/user/{name}")

    def _logged(self, name: str, words: str) -> None:
        assert words in (self.home / "log" / f"{name}.log").read_text(errors="replace")

    def _await(self, what: str, attempt: Callable[[], object], seconds: float = 90) -> None:
        deadline = time.monotonic() + seconds
        while True:
            try:
                attempt()
                return
            except (AssertionError, OSError) as error:
                ended = [name for name, daemon in self.daemons.items() if daemon.poll() is not None]
                assert not ended, f"{ended} ended\n{self.logs()}"
                assert time.monotonic() < deadline, f"{what} does not come: {error}\n{self.logs()}"
                time.sleep(0.3)

    def _java(self, *args: str) -> list[str]:
        java = Path(os.environ.get("JAVA_HOME", "/usr")) / "bin" / "java"
        path = f"{self.conf}:{self.plain.home}/lib/*"
        return [str(java), *JVM, f"-Djava.security.krb5.conf={self.krb5_conf}", "-cp", path, *args]

    def _launch(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        with (self.home / "log" / f"{name}.log").open("wb") as log:
            self.daemons[name] = subprocess.Popen(
                command, env=dict(environment), stdout=log, stderr=log, cwd=self.home, preexec_fn=_end_with_parent
            )

    def _tools_environment(self) -> dict[str, str]:
        """Of Kerberos' own programs: no other program sees these libraries."""
        return {
            "PATH": f"{self.krb5}/usr/bin:{self.krb5}/usr/sbin",
            "LD_LIBRARY_PATH": str(_libraries(self.krb5)),
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(self.home / "kdc.conf"),
        }

    def _tool(self, words: list[str], text: str = "") -> None:
        folders = (self.krb5 / "usr" / "bin" / words[0], self.krb5 / "usr" / "sbin" / words[0])
        program = next(path for path in folders if path.exists())
        done = subprocess.run(
            [str(program), *words[1:]], input=text, env=self._tools_environment(), capture_output=True, text=True
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"


def _libraries(folder: Path) -> Path:
    return next((folder / "usr" / "lib").glob("*-linux-gnu"))


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _unpack_krb5(folder: Path) -> None:
    """Debian's packages, without root."""
    script = ROOT / "packaging" / "apt.sh"
    work = folder.with_name("krb5-apt")
    line = f". {script}; private_apt {work} Kerberos; mkdir -p {folder}; unpack {folder} {' '.join(PACKAGES)}"
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", line], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
    assert done.returncode == 0, done.stderr
