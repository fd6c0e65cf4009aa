"""Data from stager's rolling window, and checkpoints to its outputs.

    for path in stager.shards("train"):
        train_on(path)

Each pass over ``shards`` is an epoch. It leases shards from the daemon, one at a
time, and yields the names of their files; requesting the next acknowledges the one
before, and stager then removes it. A shard is never lost: the lease lives as long as
its connection, and when the kernel closes that, the shard goes to another reader.

An object of class ``shards`` connects when it is iterated, in the process that
iterates it: pass it to forked or spawned processes. Each thread makes a pass of its own.
A daemon that restarts is waited for, and the leases are kept. Standard library only.
"""

from ._batches import batches
from ._checkpoint import Checkpoint, checkpoint, preempted
from ._errors import (
    AccessError,
    ConflictError,
    FormatError,
    InputFailedError,
    LeaseEndedError,
    NoSpaceError,
    NotFoundError,
    NotReadyError,
    RejectedError,
    RequestError,
    StagerError,
    UnreachableError,
    UsageError,
    VersionError,
    WaitTimeoutError,
    WindowTooSmallError,
)
from ._outputs import commit, cursor, resume, status
from ._shards import Shard, shards
from ._version import __version__

__all__ = [
    "AccessError",
    "Checkpoint",
    "ConflictError",
    "FormatError",
    "InputFailedError",
    "LeaseEndedError",
    "NoSpaceError",
    "NotFoundError",
    "NotReadyError",
    "RejectedError",
    "RequestError",
    "Shard",
    "StagerError",
    "UnreachableError",
    "UsageError",
    "VersionError",
    "WaitTimeoutError",
    "WindowTooSmallError",
    "__version__",
    "batches",
    "checkpoint",
    "commit",
    "cursor",
    "preempted",
    "resume",
    "shards",
    "status",
]
