"""One class for each kind of error, so that a trainer can decide by class."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator


class StagerError(Exception):
    """Base of all errors of this package. code is the HTTP status of the daemon's response, or 0."""

    code = 0
    listing = False  # the daemon is still listing the source of the input


class UsageError(StagerError, ValueError):
    """A call that would lose samples, or that cannot work, whatever the daemon does."""


class FormatError(StagerError, ValueError):
    """A shard that cannot be read as what its name says."""


class WindowTooSmallError(StagerError):
    """The trainer needs more shards at once than the window holds."""


class UnreachableError(StagerError, ConnectionError):
    """No daemon responded within the patience."""


class AccessError(StagerError, PermissionError):
    """This user may not open the daemon's socket, or the daemon requires a token."""


class VersionError(StagerError):
    """This client and the daemon do not fit together."""


class WaitTimeoutError(StagerError, TimeoutError):
    """The daemon responds, but what was waited for did not happen within the timeout."""


class RequestError(StagerError, ValueError):
    """The daemon rejected an argument, such as an epoch that the plan does not have."""


class NotFoundError(StagerError, LookupError):
    """The plan has no input or output of this name."""


class ConflictError(StagerError):
    """The request contradicts the state, such as a checkpoint that changed while it was committed."""


class LeaseEndedError(StagerError):
    """The lease has ended, so the shard is delivered again."""


class RejectedError(StagerError, ValueError):
    """A cursor of another data set, or a checkpoint that cannot be committed."""


class InputFailedError(StagerError):
    """The input or output has failed. The daemon's log says why, and trying again does not help."""


class NotReadyError(StagerError):
    """The daemon is starting, or busy, for longer than the patience."""


class NoSpaceError(StagerError, OSError):
    """There is no space for the checkpoint, or for the data."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.ENOSPC, message)

    def __str__(self) -> str:
        return str(self.args[1])


_OF_CODE: dict[int, type[StagerError]] = {
    400: RequestError, 413: RequestError, 401: AccessError, 403: AccessError, 404: NotFoundError, 409: ConflictError,
    410: LeaseEndedError, 422: RejectedError, 500: InputFailedError, 503: NotReadyError, 507: NoSpaceError,
}  # fmt: skip


def of_code(code: int, message: str) -> StagerError:
    """Returns the error for an HTTP status."""
    err = _OF_CODE.get(code, StagerError)(message)
    err.code = code
    return err


@contextlib.contextmanager
def no_space_named(what: str, directory: str, left: str = "what was written is removed") -> Iterator[None]:
    """Raises NoSpaceError in place of what the writer of a file in directory raised, if the disk or a quota is full."""
    try:
        yield
    except Exception as err:
        if isinstance(err, StagerError) or not _is_full(err, directory):
            raise
        free = "free space there, or have stager keep fewer checkpoints, and save again"
        raise NoSpaceError(f"no space for {what} in {directory}, and {left}; {free}: {' '.join(str(err).split())}") from err


def _is_full(err: Exception, directory: str) -> bool:
    if isinstance(err, OSError) and err.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    if os.strerror(errno.ENOSPC) in str(err) or os.strerror(errno.EDQUOT) in str(err):  # of libraries, and of shutil.copytree
        return True
    if type(err) is not RuntimeError:
        return False
    try:
        at = os.statvfs(directory)
    except OSError:
        return False
    return at.f_blocks > 0 and at.f_bavail == 0  # torch.save does not say why it failed
