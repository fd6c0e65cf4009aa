"""Batches for a training loop without a loader."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Callable

from ._errors import UsageError
from ._feed import Feed, Tag
from ._formats import Samples, open_samples
from ._order import Order, Tagged


def untag(batch: list[Tagged]) -> tuple[list[Any], list[Tag]]:
    """Returns the values of samples, and what their use acknowledges."""
    return [s.value for s in batch], [t for s in batch for t in s.tags]


class Position:
    """The position of a training loop, of those who read by a feed."""

    _feed: Feed

    @property
    def epoch(self) -> int:
        """The epoch of the next pass; within a pass, that of the pass."""
        self._feed.start()
        return self._feed.epoch

    @property
    def samples_seen(self) -> int:
        """The number of samples that this process was given since the job began, for stager.commit."""
        return self._feed.seen()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position behind the last batch, as JSON to keep with a checkpoint."""
        return self._feed.state()

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Continues at a position, or at those of all processes of the job."""
        self._feed.load(state)


class batches(Position):  # lower case: used like a function
    """Batches of samples for JAX, or any loop in one process: each pass is an epoch, and the last batch of it may be smaller.

    A batch is used when the next one is requested. A shard is acknowledged when all its samples were used, so a kill loses none.
    epoch is the epoch of the next pass, samples_seen counts what was yielded since the job began.

    decode   A function of a sample, whose result takes the sample's place. One that returns None leaves the sample out.
    shuffle  The number of samples in the shuffle buffer, which seed decides.
    open     How a shard is read, if not by its name.

    >>> data = batches("train", 256, decode=decode)  # doctest: +SKIP
    >>> for epoch in range(data.epoch, 3):  # doctest: +SKIP
    ...     for batch in data:
    ...         state = step(state, batch)
    """

    size: int

    def __init__(
        self, input: str, size: int, *, decode: Callable[[Any], Any] | None = None, shuffle: int = 0, seed: int = 0,
        open: Callable[[str], Samples] = open_samples, group: int | None = None, reader: str | None = None, socket: str | None = None,
        patience: float = 600.0, timeout: float = 3600.0,
    ) -> None:  # fmt: skip
        if size < 1:
            raise UsageError(f"the size of a batch is {size}; it must be positive")
        self.size, self._order = size, Order(open, decode, shuffle, seed)
        self._feed = Feed(input, group=group, reader=reader, socket=socket, patience=patience, timeout=timeout)
        self._feed.mixes = shuffle > 1

    def __iter__(self) -> Iterator[list[Any]]:
        feed = self._feed
        number = feed.begin()
        samples = self._order.samples(lambda n: feed.get(number, n))
        return run(feed, number, (untag(batch) for batch in iter(lambda: list(itertools.islice(samples, self.size)), [])))


def run(feed: Feed, number: int, of: Iterator[tuple[Any, list[Tag]]]) -> Iterator[Any]:
    """Yields batches, and reports each as used when the next is requested."""
    try:
        while True:
            feed.own()
            if feed.number != number:
                raise UsageError(f"another pass over input {feed.input} has begun")
            feed.use()
            batch = next(of, None)
            if batch is None:
                feed.finish(now=False)
                return
            feed.yielded(batch[1])
            yield batch[0]
    finally:
        if feed.number == number and not feed.ending:
            feed.leave()
