"""Hugging Face's datasets over the shards of an input."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, Callable

import datasets  # type: ignore[import-not-found, import-untyped, unused-ignore]
import torch.utils.data

from ._arrow import warn_of_cache
from ._errors import UsageError
from ._formats import open_samples
from .torch import ShardDataset

Step = tuple[str, tuple[Any, ...], dict[str, Any]]  # a method of IterableDataset and its arguments

_EACH = frozenset((
    "add_column", "batch", "cast", "cast_column", "filter", "map", "remove_columns", "rename_column", "rename_columns", "select_columns", "shuffle",
    "with_format",
))  # fmt: skip
_REFUSED = {
    "column_names": "the columns are known when a shard is read; write their names", "features": "the features are known when a shard is read",
    "repeat": "the plan has the number of epochs", "shard": "the plan has the parts of nodes, and stager.torch.loader those of workers",
    "skip": "load_state_dict of the loader skips what was used", "take": "leave the training loop when it has enough",
}  # fmt: skip


class Dataset(ShardDataset):
    """The samples of an input with the methods of a datasets.IterableDataset; see stager.hf.dataset."""

    def __init__(self, input: str, read: Callable[[str], Any], steps: tuple[Step, ...], options: dict[str, Any]) -> None:
        super().__init__(input, _Rows(input, read, steps), **options)
        self._made = input, read, steps, options

    def __getattr__(self, name: str) -> Any:
        if name in _EACH:
            return functools.partial(self._then, name)
        if name in _REFUSED:
            raise UsageError(f"stager.hf.dataset has no {name}: {_REFUSED[name]}")
        raise AttributeError(f"stager.hf.dataset has no {name}; it has {', '.join(sorted(_EACH))}")

    def _then(self, name: str, *args: Any, **kwargs: Any) -> Dataset:
        if name == "shuffle" and not args and kwargs.get("seed") is None:
            raise UsageError("shuffle needs a seed: the order must be the same when the rest of a shard is read again")
        input, read, steps, options = self._made
        return Dataset(input, read, (*steps, (name, args, kwargs)), options)


class _Rows:
    """Reads a shard through all steps."""

    by_epoch = True

    def __init__(self, input: str, read: Callable[[str], Any], steps: tuple[Step, ...]) -> None:
        self.input, self.read, self.steps, self.warned = input, read, steps, False

    def __call__(self, path: str, epoch: int) -> Iterator[Any]:
        of = self.read(path)
        if hasattr(of, "to_iterable_dataset"):
            if not self.warned:
                self.warned = True
                warn_of_cache(self.input, of)
            of = of.to_iterable_dataset()
        for name, args, kwargs in self.steps:
            of = getattr(of, name)(*args, **kwargs)
        of.set_epoch(epoch)
        return _alone(iter(of))


def _alone(of: Iterator[Any]) -> Iterator[Any]:
    """Yields all samples in a worker of a DataLoader: each has shards of its own, and the library must not divide this one again."""
    worker = torch.utils.data._utils.worker  # type: ignore[attr-defined, unused-ignore]
    info, worker._worker_info = worker._worker_info, None
    try:
        first = next(of, None)
    finally:
        worker._worker_info = info
    if first is not None:
        yield first
        yield from of


def _samples(path: str) -> Iterable[Any]:
    of = open_samples(path)
    try:
        for i in range(of.count):
            yield of.load(i)
    finally:
        of.close()


def rows(path: str) -> Any:
    """Returns the rows of Parquet with the features that the file names, or the samples of another file."""
    features = None
    if path.lower().endswith(".parquet"):
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]

        features = datasets.Features.from_arrow_schema(pyarrow.parquet.read_schema(path))
    return datasets.IterableDataset.from_generator(_samples, features=features, gen_kwargs={"path": path})
