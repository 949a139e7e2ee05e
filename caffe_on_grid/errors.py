"""Every expected error, and the exit code it ends the command with.

::

    GridError                      (never raised itself)
    ├── TrainingFailed      1      a rank's error after the first step, NaN, a snapshot that could not be written
    ├── UsageError          2      unknown option, bad value
    ├── ConfigError         3      prototxt, solver, shapes; missing input; output exists; bad archive
    │   └── DataError       3      empty source, undecodable record, label out of range
    ├── EnvironmentFault    4      Spark, Java, Hadoop configuration, runtime, MPI, device missing or broken
    ├── SecurityFault       5      no ticket, expired token, permission denied
    ├── GangError           6      the gang is not complete in time, or can never be
    ├── ApplicationDied     7      the driver or the application master died before the first step
    ├── ContactLost         8      the outcome is not known
    ├── PreflightFailed     9      a check found a failure
    ├── Interrupted       130      SIGINT
    └── Terminated        143      SIGTERM

An error's text is one line: what, where, why, what to do. A traceback means a bug.
"""

from __future__ import annotations

import errno
import signal

OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)
"""What may befall any file that is written, and is no fault of the program."""


class GridError(Exception):
    """Root of every expected error; `exit_code` is what the command ends with."""

    exit_code = 1


class TrainingFailed(GridError):
    """Training broke after it had begun."""

    exit_code = 1


class UsageError(GridError):
    """The command line is wrong."""

    exit_code = 2


class ConfigError(GridError):
    """What the user supplied (prototxt, path, archive) cannot be used."""

    exit_code = 3


class DataError(ConfigError):
    """The records cannot be used."""


class EnvironmentFault(GridError):
    """Something that must be installed or reachable is not."""

    exit_code = 4


class SecurityFault(GridError):
    """The user may not do this, or could not be told who they are."""

    exit_code = 5


class GangError(GridError):
    """The executors did not all come, or can never all come."""

    exit_code = 6


class ApplicationDied(GridError):
    """The driver or the application master ended before the first step."""

    exit_code = 7


class ContactLost(GridError):
    """What became of the job is not known."""

    exit_code = 8


class PreflightFailed(GridError):
    """A check before the job found a failure."""

    exit_code = 9


class Interrupted(GridError):
    """Ended by SIGINT, after the job was ended."""

    exit_code = 130


class Terminated(GridError):
    """Ended by SIGTERM, after the job was ended."""

    exit_code = 143


SIGNALS: dict[int, type[GridError]] = {
    signal.SIGINT: Interrupted,
    signal.SIGTERM: Terminated,
    signal.SIGHUP: Terminated,
}
"""The error that each signal which ends a job stands for."""


def of_the_machine(error: OSError) -> EnvironmentFault:
    """What stands for an error of OF_THE_MACHINE; any other is a fault of the program's, and raised again."""
    if error.errno not in OF_THE_MACHINE:
        raise error
    return EnvironmentFault(f"{error.filename or 'this machine'}: {error.strerror}")


class Signalled(BaseException):
    """A signal, raised where it came; no `except Exception`, ours or a library's, takes it for a fault of its own."""

    def __init__(self, error: GridError) -> None:
        """`error`: what the command ends with."""
        super().__init__(str(error))
        self.error = error


CATEGORIES: dict[str, type[GridError]] = {
    cls.__name__: cls
    for cls in (
        TrainingFailed,
        UsageError,
        ConfigError,
        DataError,
        EnvironmentFault,
        SecurityFault,
        GangError,
        ApplicationDied,
        ContactLost,
        PreflightFailed,
        Interrupted,
        Terminated,
    )
}
"""Error classes by the name they travel under in report documents."""


def from_category(name: str, message: str) -> GridError:
    """The error that a report's category and message stand for; an unknown category is TrainingFailed."""
    return CATEGORIES.get(name, TrainingFailed)(message)
