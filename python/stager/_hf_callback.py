"""The callback of Hugging Face's Trainer."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import transformers

from ._checkpoint import Checkpoint, preempted
from ._errors import RejectedError, UsageError
from .hf import _POSITION

# Trainers since 4.42 write the state of such callbacks in trainer_state.json, the last file of a checkpoint. So stager, which sees that the
# checkpoint is complete when that file is there, never sees one without its position.
_Exports: Any = getattr(getattr(transformers, "trainer_callback", None), "ExportableState", None)
_OLD_S = 120.0  # how long a step without its position may take to be saved


class _Plain:
    """What an older Trainer has in place of ExportableState."""


class Callback(_Exports or _Plain, transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Commits each checkpoint of a Trainer, and has it save at once when the machine is about to be reclaimed.

    output  The output that contains the Trainer's output_dir; by default the plan's only one.
    data    What has a state_dict: a loader of stager.torch. Its position is kept in the checkpoint, for restore() and position().

    The Trainer must take the loader as it is: override get_train_dataloader to return it.
    """

    def __init__(self, output: str | None = None, *, data: Any = None, socket: str | None = None) -> None:
        self.checkpoint, self.socket, self.noticed, self.trains = Checkpoint(output, socket=socket), socket, False, False
        self.data = data

    def state(self) -> dict[str, Any]:
        """Returns what a Trainer keeps in its state: the position."""
        attributes = {"stager": self.data.state_dict()} if self.trains and self.data is not None else {}
        return {"args": {}, "attributes": attributes}

    @classmethod
    def from_state(cls, state: Any) -> Any:
        raise UsageError("restore_callback_states_from_checkpoint=True would replace stager.hf.Callback by one without its loader; leave it False")

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self.trains = True
        if _Exports is not None:  # the checkpoint that it resumes at may be of a Trainer without this callback
            state.stateful_callbacks.setdefault(type(self).__name__, self.state())
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if not self.noticed and preempted(socket=self.socket):
            self.noticed = control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if state.is_world_process_zero:
            path = os.path.abspath(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))
            until = time.monotonic()
            if _Exports is None and self.data is not None:
                with open(os.path.join(path, _POSITION), "w", encoding="utf-8") as file:
                    json.dump(self.data.state_dict(), file)
                until += _OLD_S
            self._commit(path, state.global_step, until)
        return control

    def _commit(self, path: str, step: int, until: float) -> None:
        """Commits. Stager may have begun to save the step without its position: then it saves the step again."""
        while True:
            try:
                self.checkpoint.commit(path, step=step, samples_seen=getattr(self.data, "samples_seen", 0))
                return
            except RejectedError:
                if time.monotonic() >= until:
                    raise
            time.sleep(0.5)
