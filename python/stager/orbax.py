"""Orbax: checkpoints of a CheckpointManager that are committed when they are complete.

    with stager.orbax.CheckpointManager("/out", data=data) as manager:
        manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(data.state_dict())))
"""

from __future__ import annotations

import os
from typing import Any

import jax  # type: ignore[import-not-found, import-untyped, unused-ignore]
import orbax.checkpoint as ocp  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._checkpoint import Checkpoint
from ._errors import UsageError

__all__ = ["CheckpointManager"]


class CheckpointManager(ocp.CheckpointManager):  # type: ignore[misc, unused-ignore]
    """A CheckpointManager that commits each step when it has its name, on the process that Orbax has write it.

    Saves may be asynchronous: then the commit happens in the thread of the save, and an error in it is raised by wait_until_finished or the next
    save. directory is that of the output or below it; options and others are those of CheckpointManager.

    data    What has samples_seen, as loaders of this package have: its number at the call of save becomes part of the commit.
    output  The output that contains directory; by default the plan's only one.
    """

    def __init__(
        self, directory: str | os.PathLike[str], *args: Any, data: Any = None, output: str | None = None, socket: str | None = None, **options: Any
    ) -> None:  # fmt: skip
        if not hasattr(ocp.CheckpointManager, "_finalize_checkpoint"):
            raise UsageError("this version of Orbax does not say when a step is complete; use ocp.CheckpointManager, and stager.commit after its save")
        self._stager, self._stager_data, self._stager_seen = Checkpoint(output, socket=socket), data, dict[int, int]()
        super().__init__(os.path.abspath(os.fspath(directory)), *args, **options)
        of = options.get("options") or ocp.CheckpointManagerOptions()
        names = ocp.path.step
        self._stager_names = of.step_name_format or names.standard_name_format(
            step_prefix=of.step_prefix, step_format_fixed_length=of.step_format_fixed_length
        )

    def save(self, step: int, *args: Any, **options: Any) -> bool:
        """Saves a step, if it is due, and commits it when it is complete."""
        self._stager_seen[step] = getattr(self._stager_data, "samples_seen", 0)
        saves = bool(super().save(step, *args, **options))
        if not saves:
            self._stager_seen.pop(step, None)
        return saves

    def _finalize_checkpoint(self, step: int) -> None:
        super()._finalize_checkpoint(step)
        seen = self._stager_seen.pop(step, 0)
        if jax.process_index() == 0:
            path = os.fspath(ocp.path.step.build_step_path(self.directory, self._stager_names, step))
            self._stager.commit(path, step=step, samples_seen=seen, all_nodes=True)
