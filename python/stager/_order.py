"""The samples of a pass in their order, which does not depend on the number of workers."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from ._errors import StagerError
from ._feed import Item, Tag, numbers
from ._formats import Samples

Get = Callable[[int], "Item | None"]  # shard n of a pass, or None at its end


class Tagged:
    """A sample, and what its use acknowledges."""

    __slots__ = ("tags", "value")

    def __init__(self, value: Any, tags: list[Tag]) -> None:
        self.value, self.tags = value, tags


class Order:
    """How samples are read: all fields are the user's."""

    def __init__(self, open: Callable[[str], Samples], decode: Callable[[Any], Any] | None, shuffle: int, seed: int) -> None:
        self.open, self.decode, self.shuffle, self.seed = open, decode, shuffle, seed

    def samples(self, get: Get, worker: int = 0, workers: int = 1, block: int = 1) -> Iterator[Tagged]:
        """Yields the samples of one worker. Blocks of samples go to the workers in turn, as a loader takes batches from them in turn: so
        batches come in the same order whatever the number of workers. Every worker finds out how many samples each shard has, and
        reads its own only."""
        readers: dict[int, tuple[Samples, list[int]]] = {}  # with the number of samples that are still in the order
        aside: list[Tag] = []  # of samples that decode left out, and of shards without any
        try:
            for at, (n, i) in enumerate(self._mix(self._indices(get, readers, aside))):
                reader, left = readers[n]
                if at // block % workers == worker:
                    value = reader.load(i)
                    if self.decode is not None:
                        value = self.decode(value)
                    aside.append((n, i, reader.count))
                    if value is not None:
                        yield Tagged(value, list(aside))
                        aside.clear()
                left[0] -= 1
                if left[0] == 0:
                    readers.pop(n)[0].close()
        finally:
            for reader, _ in readers.values():
                reader.close()

    def _indices(self, get: Get, readers: dict[int, tuple[Samples, list[int]]], aside: list[Tag]) -> Iterator[tuple[int, int, int]]:
        n = 0
        while (item := get(n)) is not None:
            reader = self._open(get, item)
            used = numbers(item.used)
            indices = [i for i in range(reader.count) if i not in used]
            if indices:
                readers[n] = reader, [len(indices)]
            else:
                aside.append((n, -1, reader.count))
                reader.close()
            for i in indices:
                yield item.epoch, n, i
            n += 1

    def _open(self, get: Get, item: Item) -> Samples:
        for _ in range(2):
            if item.total >= 0:  # other workers had all of it, it was used and may be gone

                def load(i: int, path: str = item.path) -> Any:
                    raise StagerError(f"{path} was acknowledged before sample {i} was used")

                return Samples(item.total, load)
            try:
                return self.open(item.path)
            except FileNotFoundError:
                again = get(item.number)
                if again is None or again.total < 0:
                    raise
                item = again
        raise AssertionError("unreachable")

    def _mix(self, of: Iterator[tuple[int, int, int]]) -> Iterator[tuple[int, int]]:
        """Shuffles in a buffer. A sample stays for the time of two buffers at most, since its shard stays in the window for so long."""
        buffer: list[tuple[int, int, int]] = []  # with the number of arrival
        waiting: collections.deque[int] = collections.deque()  # those numbers, in order
        gone: set[int] = set()
        draw: random.Random | None = None
        for at, (epoch, n, i) in enumerate(of):
            if self.shuffle < 2:
                yield n, i
                continue
            draw = draw or random.Random(f"{self.seed}-{epoch}")
            buffer.append((at, n, i))
            waiting.append(at)
            if len(buffer) < self.shuffle:
                continue
            while waiting[0] in gone:
                gone.remove(waiting.popleft())
            j = draw.randrange(len(buffer))
            if at - waiting[0] >= 2 * self.shuffle:
                j = next(k for k, (number, _, _) in enumerate(buffer) if number == waiting[0])
            buffer[j], buffer[-1] = buffer[-1], buffer[j]
            number, n, i = buffer.pop()
            gone.add(number)
            yield n, i
        if draw is not None:
            draw.shuffle(buffer)
        yield from ((n, i) for _, n, i in buffer)


class Whole:
    """Samples of shards that are read from beginning to end: each worker takes a shard in turn. A read that has by_epoch gets the epoch, too."""

    def __init__(self, read: Callable[..., Iterable[Any]]) -> None:
        self.read, self.by_epoch = read, getattr(read, "by_epoch", False)

    def samples(self, get: Get, worker: int = 0, workers: int = 1, block: int = 1) -> Iterator[Tagged]:
        n, aside = worker, list[Tag]()
        while (item := get(n)) is not None:
            used, i, held = numbers(item.used), 0, list[Tagged]()
            for value in self.read(item.path, item.epoch) if self.by_epoch else self.read(item.path):
                if i not in used:
                    yield from held  # not the last one of the shard
                    held = [Tagged(value, [*aside, (n, i, -1)])]
                    aside = []
                i += 1
            if held:
                number, index, _ = held[0].tags[-1]
                held[0].tags[-1] = (number, index, i)
                yield from held
            else:
                aside.append((n, -1, i))
            n += workers
