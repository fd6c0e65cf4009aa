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

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
from ._staged import staged
from ._version import __version__

if TYPE_CHECKING:
    from ._webdataset import WebDataset


def webdataset(input: str, **options: Any) -> WebDataset:
    """Returns the samples of an input with the methods of a webdataset.WebDataset, for stager.torch.loader.

    The stages, such as decode, map, select and to_tuple, get one sample at a time, in the workers. So each sample is acknowledged when
    the training loop has used it, and the order is the same for any number of workers. batched is batch_size of the loader;
    shuffle(size, seed=…) shuffles before all stages. The options are those of stager.torch.SampleDataset, except decode and open.

    >>> dataset = webdataset("train").shuffle(1000, seed=7).decode("torchrgb").to_tuple("jpg", "cls")  # doctest: +SKIP
    >>> data = stager.torch.loader(dataset, batch_size=64, num_workers=4)  # doctest: +SKIP
    """
    from ._webdataset import WebDataset

    return WebDataset(input, **options)


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
    "staged",
    "status",
    "webdataset",
]
