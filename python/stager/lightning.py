"""Lightning: each sample once, also after a kill, and checkpoints that are committed when they are written.

    data = stager.torch.loader(dataset, batch_size=64, num_workers=4)
    trainer = Trainer(callbacks=[stager.lightning.Callback(data)], plugins=[stager.lightning.CheckpointIO()])
    trainer.fit(model, data)
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

try:
    from lightning.pytorch import Callback as _Callback
    from lightning.pytorch.plugins.io import TorchCheckpointIO as _CheckpointIO
except ImportError:
    from pytorch_lightning import Callback as _Callback  # type: ignore[no-redef, unused-ignore]
    from pytorch_lightning.plugins.io import TorchCheckpointIO as _CheckpointIO  # type: ignore[no-redef, unused-ignore]

from ._checkpoint import Checkpoint
from ._errors import NoSpaceError, UsageError, no_space_named

__all__ = ["Callback", "CheckpointIO"]


class Callback(_Callback):  # type: ignore[misc, unused-ignore]
    """Keeps the position of a loader of stager.torch in each checkpoint, and continues there when fit gets a ckpt_path.

    Lightning requests a batch before it has used the one before; this callback tells the loader, so that neither an acknowledgement nor a
    checkpoint is a batch early. It is for jobs of one process: with several, keep the states of all and load the list of them.
    """

    def __init__(self, data: Any) -> None:
        self.feed = data._stager.feed()

    @property
    def state_key(self) -> str:
        """The name of the position in a checkpoint."""
        return "stager"

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if trainer.world_size > 1:
            raise UsageError(
                f"stager.lightning.Callback keeps the position of one process, and this job has {trainer.world_size}; keep data.state_dict() of"
                " all processes, and give load_state_dict the list of them"
            )
        self.feed.ahead = 1

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self.feed.ending:
            self.feed.finish()

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self.feed.state()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.feed.load(state_dict)


class CheckpointIO(_CheckpointIO):  # type: ignore[misc, unused-ignore]
    """Commits each checkpoint that Lightning writes, when it is complete; only those with a number in their names, not last.ckpt.

    output  The output that contains the checkpoints; by default the plan's only one.
    """

    def __init__(self, output: str | None = None, *, socket: str | None = None) -> None:
        super().__init__()
        self.checkpoint, self.committed = Checkpoint(output, socket=socket), -1

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        before = os.path.lexists(path)
        try:
            with no_space_named(os.path.basename(path), os.path.dirname(os.path.abspath(path))):
                super().save_checkpoint(checkpoint, path, storage_options)
        except NoSpaceError:
            if not before:
                with contextlib.suppress(OSError):
                    os.remove(path)
            raise
        step, of = int(checkpoint.get("global_step", 0)), checkpoint.get("callbacks", {}).get("stager", {})
        if step == self.committed or not any(letter.isdigit() for letter in os.path.basename(path)):
            return
        self.checkpoint.commit(os.path.abspath(path), step=step, samples_seen=of.get("samples_seen", 0), all_nodes=True)
        self.committed = step
