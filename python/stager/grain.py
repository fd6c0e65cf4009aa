"""Grain: a window through a grain.IterDataset, and each sample once.

    data = stager.grain.loader("train", lambda samples: samples.map(decode).batch(64), shuffle=1000, seed=7)
    for batch in data:
        step(batch)
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any, Callable

import grain  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._batches import Position, run
from ._errors import UsageError
from ._feed import Feed, Tag
from ._formats import Samples, open_samples
from ._order import Order, Tagged

__all__ = ["loader"]

_KEY = "stager"  # of the number of samples in the state of an iterator
_KEEPS = ("Map", "RandomMap", "MapWithIndex", "Filter", "Batch", "ThreadPrefetch", "WithOptions", "WithSeed", "Output")


class _SourceIterator(grain.DatasetIterator):  # type: ignore[misc, unused-ignore]
    def __init__(self, samples: Iterator[Tagged]) -> None:
        super().__init__()
        self.samples, self.count = samples, 0
        self.tags: collections.deque[list[Tag]] = collections.deque()  # of samples that the training loop was not given yet

    def __next__(self) -> Any:
        sample = next(self.samples)
        self.tags.append(sample.tags)
        self.count += 1
        return sample.value

    def get_state(self) -> dict[str, Any]:
        return {_KEY: self.count}

    def set_state(self, state: dict[str, Any]) -> None:
        raise UsageError("an iterator over a window cannot be set to a state; use load_state_dict of stager.grain.loader")


class _SourceIterDataset(grain.IterDataset):  # type: ignore[misc, unused-ignore]
    def __init__(self, source: _SourceIterator) -> None:
        super().__init__()
        self.source = source

    def __iter__(self) -> _SourceIterator:
        return self.source

    def __reduce__(self) -> Any:
        raise UsageError("the samples of a window cannot go to other processes of Grain; use threads, as grain.experimental.ThreadPrefetchIterDataset does")


def _count(state: Any) -> int | None:
    """Returns the number of samples that the source had yielded when an iterator had a state."""
    if isinstance(state, dict):
        if _KEY in state:
            return int(state[_KEY])
        state = list(state.values())
    if isinstance(state, (list, tuple)):
        return next((n for n in map(_count, state) if n is not None), None)
    return None


def _check(dataset: Any) -> None:
    """Rejects transformations that change the order of samples, or whose state does not say which samples an element has."""
    kind = type(dataset).__name__
    if isinstance(dataset, _SourceIterDataset):
        return
    if kind.lstrip("_").removesuffix("IterDataset") not in _KEEPS:
        raise UsageError(
            f"stager.grain.loader cannot tell which samples {kind} has used; it takes map, filter, batch and threads that prefetch, of what it gives"
        )
    for parent in dataset._parents:
        _check(parent)


class _Loader(Position):
    def __init__(self, feed: Feed, order: Order, through: Callable[[Any], Any]) -> None:
        self._feed, self._order, self._through = feed, order, through

    def __iter__(self) -> Iterator[Any]:
        feed = self._feed
        number = feed.begin()
        source = _SourceIterator(self._order.samples(lambda n: feed.get(number, n)))

        def batches() -> Iterator[tuple[Any, list[Tag]]]:
            given = 0
            passing = iter(dataset)
            for batch in passing:
                upto = _count(passing.get_state())  # also with elements that were prefetched: it is the state behind this one
                if upto is None:
                    raise UsageError("this version of Grain does not keep the states of datasets that others are made of; use stager.batches")
                tags = [tag for _ in range(upto - given) for tag in source.tags.popleft()]
                given = upto
                yield batch, tags

        try:
            dataset = self._through(_SourceIterDataset(source))
            _check(dataset)
        except BaseException:
            feed.leave()
            raise
        return run(feed, number, batches())


def loader(
    input: str, through: Callable[[Any], Any], *, decode: Callable[[Any], Any] | None = None, shuffle: int = 0, seed: int = 0,
    open: Callable[[str], Samples] = open_samples, group: int | None = None, reader: str | None = None, socket: str | None = None,
    patience: float = 600.0, timeout: float = 3600.0,
) -> Any:  # fmt: skip
    """Returns an iterable of what through makes of a grain.IterDataset of the samples of an input; each pass is an epoch.

    A batch is used when the training loop requests the next one, also where Grain reads ahead in threads, and a shard is acknowledged when all its
    samples were used, so a kill loses none. through may use map, random_map, filter, batch and threads that prefetch, and
    no processes. It has epoch, samples_seen, state_dict and load_state_dict. The options are those of stager.batches.

    >>> data = loader("train", lambda samples: samples.map(decode).batch(64), shuffle=1000, seed=7)  # doctest: +SKIP
    >>> for epoch in range(data.epoch, 3):  # doctest: +SKIP
    ...     for batch in data:
    ...         state = step(state, batch)
    """
    feed = Feed(input, group=group, reader=reader, socket=socket, patience=patience, timeout=timeout)
    feed.mixes = shuffle > 1
    return _Loader(feed, Order(open, decode, shuffle, seed), through)
