"""PyTorch's distributed checkpoints (torch.distributed.checkpoint) that are committed when they are complete.

    dcp.save(state, storage_writer=stager.dcp.Writer("/out/step-500", samples_seen=data.samples_seen))
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from torch.distributed.checkpoint import FileSystemWriter  # pyright: ignore[reportPrivateImportUsage]

from ._checkpoint import Checkpoint
from ._errors import UsageError, no_space_named

__all__ = ["Writer"]


class Writer(FileSystemWriter):  # type: ignore[misc, unused-ignore]
    """A FileSystemWriter whose end commits the checkpoint, on the rank that coordinates the save.

    The commit declares that the files of all nodes are complete: dcp calls finish after all ranks have written. It works with save and
    async_save. path is a directory of the output; options are those of FileSystemWriter.

    output        The output that contains path; by default the plan's only one.
    step          By default the number at the end of the directory's name.
    samples_seen  The samples that were used since the job began, as of stager.commit.

    >>> writer = Writer("/out/step-500", thread_count=4)  # doctest: +SKIP
    >>> dcp.save({"model": model.state_dict()}, storage_writer=writer)  # doctest: +SKIP
    """

    def __init__(
        self, path: str | os.PathLike[str], *, output: str | None = None, step: int | None = None, samples_seen: int = 0, socket: str | None = None,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(path, **options)
        self._stager = Checkpoint(output, socket=socket)
        self._stager_step, self._stager_samples = step, samples_seen

    def write_data(self, plan: Any, planner: Any) -> Any:
        """Writes this rank's part. A full disk raises NoSpaceError, which dcp has among the failures of its CheckpointException."""
        with self._stager_space():
            return super().write_data(plan, planner)

    def _stager_space(self) -> contextlib.AbstractContextManager[None]:
        path = os.path.abspath(os.fspath(self.path))
        return no_space_named(os.path.basename(path), os.path.dirname(path), "what was written is not committed; remove it")

    def finish(self, metadata: Any, results: Any) -> None:
        """Writes the metadata, and commits the checkpoint. When this returns, stager holds it."""
        if not getattr(self, "use_collectives", True):
            raise UsageError(
                "with use_collectives=False each rank ends by itself, and nobody knows when all have; use FileSystemWriter, and stager.commit after a barrier"
            )
        with self._stager_space():
            super().finish(metadata, results)
        path = os.path.abspath(os.fspath(self.path))
        self._stager.commit(path, step=self._stager_step, samples_seen=self._stager_samples, all_nodes=True)
