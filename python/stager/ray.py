"""Ray Train: a window in the workers of a trainer, and checkpoints that are committed when they are reported.

    data = stager.ray.dataset("train", decode=decode)
    for batch in data.iter_torch_batches(batch_size=64):
        step(batch)
    ray.train.report(metrics, checkpoint=Checkpoint(directory), checkpoint_dir_name="step-500", checkpoint_upload_fn=stager.ray.checkpoint_upload_fn)
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket as sockets
from collections.abc import Iterator
from typing import Any, Callable

import ray.train  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._batches import batches
from ._checkpoint import Checkpoint
from ._errors import UsageError, no_space_named
from ._formats import Samples, open_samples

__all__ = ["Dataset", "checkpoint_upload_fn", "dataset"]


def _rank() -> int:
    with contextlib.suppress(RuntimeError):  # outside of a trainer there is none
        return int(ray.train.get_context().get_world_rank() or 0)
    return 0


class Dataset(batches):
    """The samples of an input with the methods of a ray.data.DataIterator; see stager.ray.dataset."""

    def iter_batches(self, *, batch_size: int = 256) -> Iterator[dict[str, Any]]:
        """Iterates over batches of an epoch: arrays of NumPy by column. Samples that are no dict are in the column item."""
        import numpy as np

        self.size = batch_size
        for batch in self:
            rows = [row if isinstance(row, dict) else {"item": row} for row in batch]
            yield {name: np.asarray([row[name] for row in rows]) for name in rows[0]}

    def iter_torch_batches(self, *, batch_size: int = 256) -> Iterator[dict[str, Any]]:
        """Iterates over batches of an epoch: tensors by column."""
        import torch  # which pyright takes for stager.torch where there is no PyTorch

        for batch in self.iter_batches(batch_size=batch_size):
            yield {name: torch.as_tensor(of) for name, of in batch.items()}  # pyright: ignore[reportAttributeAccessIssue]


def dataset(
    input: str, *, decode: Callable[[Any], Any] | None = None, shuffle: int = 0, seed: int = 0, open: Callable[[str], Samples] = open_samples,
    group: int | None = None, reader: str | None = None, socket: str | None = None, patience: float = 600.0, timeout: float = 3600.0,
) -> Dataset:  # fmt: skip
    """Returns the samples of an input, for the train_loop_per_worker of a trainer, with iter_batches and iter_torch_batches as a DataIterator has them.

    Each pass is an epoch. Workers read the window of their own node, not what Ray Data has read elsewhere: a batch is used when the next one is
    requested, and a shard is acknowledged when all its samples were used, so a killed worker loses none. It has epoch, samples_seen,
    state_dict and load_state_dict. The options are those of stager.batches. stager.torch.loader works in Ray Train, too.

    >>> data = dataset("train", decode=decode)  # doctest: +SKIP
    >>> for epoch in range(data.epoch, 3):  # doctest: +SKIP
    ...     for batch in data.iter_torch_batches(batch_size=64):
    ...         step(batch)
    """
    reader = reader or f"{sockets.gethostname()[:64]}-rank{_rank()}"
    return Dataset(
        input, 1, decode=decode, shuffle=shuffle, seed=seed, open=open, group=group, reader=reader, socket=socket, patience=patience, timeout=timeout
    )


def checkpoint_upload_fn(
    checkpoint: Any, checkpoint_dir_name: str, *, step: int | None = None, samples_seen: int = 0, output: str | None = None, socket: str | None = None
) -> Any:
    """Puts the checkpoint that a worker reports into an output, and commits it. Give it to ray.train.report of rank 0, as checkpoint_upload_fn.

    The storage_path of the RunConfig is the output's directory, or one below it. The step is the number at the end of checkpoint_dir_name,
    unless it is given, as samples_seen is, by functools.partial. Ray may remove the directory when this returns: stager holds its files.

    >>> upload = functools.partial(stager.ray.checkpoint_upload_fn, samples_seen=data.samples_seen)  # doctest: +SKIP
    >>> ray.train.report(metrics, checkpoint=at, checkpoint_dir_name=f"step-{step}", checkpoint_upload_fn=upload)  # doctest: +SKIP
    """
    if step is None and not re.fullmatch(r"\D*\d+", checkpoint_dir_name):
        raise UsageError(f"the step of checkpoint {checkpoint_dir_name} is not in its name; report it with checkpoint_dir_name=f'step-{{step}}'")
    if _rank() != 0:
        raise UsageError(f"rank {_rank()} reports a checkpoint, too: only that of rank 0 is committed; where each rank saves a part, use stager.dcp")
    storage: Any = ray.train.get_context().get_storage()
    final = os.path.join(storage.experiment_fs_path, checkpoint_dir_name)
    part = os.path.join(storage.experiment_fs_path, f".new-{checkpoint_dir_name}")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with checkpoint.as_directory() as directory, no_space_named(checkpoint_dir_name, storage.experiment_fs_path):
            shutil.copytree(directory, part)
        shutil.rmtree(final, ignore_errors=True)  # of a run before, which stager holds if it was complete
        os.rename(part, final)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    Checkpoint(output, socket=socket).commit(final, step=step, samples_seen=samples_seen, all_nodes=True)
    return ray.train.Checkpoint(final, filesystem=storage.storage_filesystem)
