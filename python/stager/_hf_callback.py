"""The callback of Hugging Face's Trainer."""

from __future__ import annotations

import json
import os
from typing import Any

import transformers

from ._checkpoint import Checkpoint, preempted
from .hf import _POSITION


class Callback(transformers.TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Commits each checkpoint of a Trainer, and has it save at once when the machine is about to be reclaimed.

    output  The output that contains the Trainer's output_dir; by default the plan's only one.
    data    What has a state_dict: a loader of stager.torch. Its position is kept in the checkpoint, for position().

    The Trainer must take the loader as it is: override get_train_dataloader to return it.
    """

    def __init__(self, output: str | None = None, *, data: Any = None, socket: str | None = None) -> None:
        self.checkpoint, self.data, self.socket, self.noticed = Checkpoint(output, socket=socket), data, socket, False

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if not self.noticed and preempted(socket=self.socket):
            self.noticed = control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if state.is_world_process_zero:
            path = os.path.abspath(os.path.join(args.output_dir, f"checkpoint-{state.global_step}"))
            if self.data is not None:
                with open(os.path.join(path, _POSITION), "w", encoding="utf-8") as file:
                    json.dump(self.data.state_dict(), file)
            self.checkpoint.commit(path, step=state.global_step, samples_seen=getattr(self.data, "samples_seen", 0))
        return control
