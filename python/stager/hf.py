"""Hugging Face: datasets over a window, and checkpoints of a Trainer that survive.

    dataset = stager.hf.dataset("train").map(tokenize, batched=True)
    data = stager.torch.loader(dataset, batch_size=64, num_workers=4)
    trainer = Trainer(…, callbacks=[stager.hf.Callback(data=data)])
    trainer.train(resume_from_checkpoint=stager.hf.restore("/newest", data))
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any, Callable

from ._checkpoint import Checkpoint

if TYPE_CHECKING:
    from ._hf_callback import Callback
    from ._hf_dataset import Dataset

__all__ = ["Callback", "dataset", "position", "restore"]

_POSITION = "stager.json"  # in checkpoints of a Trainer before 4.42


def __getattr__(name: str) -> Any:  # transformers is imported by those who use it
    if name == "Callback":
        from ._hf_callback import Callback

        return Callback
    raise AttributeError(f"module {__name__} has no attribute {name}")


def dataset(input: str, *, read: Callable[[str], Any] | None = None, **options: Any) -> Dataset:
    """Returns the samples of an input with the methods of a datasets.IterableDataset, for stager.torch.loader.

    map, filter, shuffle, batch, cast and others apply to the samples of each shard by itself, in the worker that reads it. So a shard is
    acknowledged when the training loop has used all that became of it, also when a batched map makes more or fewer samples. The
    shards come in the order of the plan, and shuffle, which needs a seed, mixes the samples of one.

    read returns a Dataset or an IterableDataset for the path of a shard; by default the rows of Parquet and JSON lines, and samples of tar
    archives. The options group, reader, socket, patience and timeout are those of stager.shards.

    >>> dataset = stager.hf.dataset("train").map(tokenize, batched=True, remove_columns=["text"]).shuffle(seed=7)  # doctest: +SKIP
    >>> data = stager.torch.loader(dataset, batch_size=64, num_workers=4)  # doctest: +SKIP
    """
    from ._hf_dataset import Dataset, rows

    return Dataset(input, read or rows, (), options)


def position(path: str) -> dict[str, Any] | None:
    """Returns the data position of a checkpoint, for load_state_dict, or None."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(path, "trainer_state.json"), encoding="utf-8") as file:
        for of in json.load(file).get("stateful_callbacks", {}).values():
            for one in of if isinstance(of, list) else [of]:
                if "stager" in one.get("attributes", {}):
                    exported: dict[str, Any] = one["attributes"]["stager"]
                    return exported
    with contextlib.suppress(FileNotFoundError), open(os.path.join(path, _POSITION), encoding="utf-8") as file:
        state: dict[str, Any] = json.load(file)
        return state
    return None


def restore(path: str, data: Any = None, *, output: str | None = None, socket: str | None = None, timeout: float = 3600.0) -> str | None:
    """Restores the newest valid checkpoint to path, and returns path for the Trainer's resume_from_checkpoint, or None if there is none.

    data, a loader of stager.torch, continues where that checkpoint stood, so TrainingArguments needs ignore_data_skip=True. See Checkpoint.restore.
    """
    if Checkpoint(output, socket=socket).restore(path, rewind=False, timeout=timeout) is None:
        return None
    state = position(path)
    if data is not None and state is not None:
        data.load_state_dict(state)
    return path
