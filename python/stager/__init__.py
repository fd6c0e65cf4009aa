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
    from .torch import SampleDataset


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


def mds(input: str, *, allow_unsafe_types: bool = False, **options: Any) -> SampleDataset:
    """Returns the samples of an input whose shards MosaicML Streaming wrote (MDS, without compression), for stager.torch.loader.

    The index.json of the data set is not needed; one in the input has no samples. Samples with pickled columns need allow_unsafe_types. The
    options are those of stager.torch.SampleDataset, except open. It imports the encodings of the package mosaicml-streaming.

    >>> data = stager.torch.loader(mds("train", shuffle=1000, seed=7), batch_size=64, num_workers=4)  # doctest: +SKIP
    """
    import functools

    from ._streaming import open_mds
    from .torch import SampleDataset

    return SampleDataset(input, open=functools.partial(open_mds, unsafe=allow_unsafe_types), **options)


def litdata(input: str, index: str, *, allow_unsafe_types: bool = False, **options: Any) -> SampleDataset:
    """Returns the samples of an input whose chunks LitData wrote, for stager.torch.loader.

    index is the path of the data set's index.json, such as stager.staged returns: chunks do not say what their items are. One in the input
    has no samples. Chunks must not be compressed or encrypted. Pickled items need allow_unsafe_types. The options are those of
    stager.torch.SampleDataset, except open. It imports the serializers of the package litdata, or pyarrow for chunks that hold rows of Arrow.

    >>> index = stager.staged("s3://data/imagenet/index.json")  # doctest: +SKIP
    >>> data = stager.torch.loader(litdata("train", index, shuffle=1000, seed=7), batch_size=64, num_workers=4)  # doctest: +SKIP
    """
    import functools

    from ._streaming import litdata_config, open_litdata
    from .torch import SampleDataset

    config = litdata_config(index, unsafe=allow_unsafe_types)
    return SampleDataset(input, open=functools.partial(open_litdata, config=config), **options)


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
    "litdata",
    "mds",
    "preempted",
    "resume",
    "shards",
    "staged",
    "status",
    "webdataset",
]
