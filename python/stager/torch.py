"""Datasets and the loader for PyTorch.

    dataset = stager.torch.SampleDataset("train", decode=decode)
    loader = stager.torch.loader(dataset, batch_size=64, num_workers=4)

A sample is used when the training loop requests the batch after its own. A shard is acknowledged when all its samples were
used, whatever the number of workers and the depth of queues, so that a killed worker or trainer loses none.
"""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Generator, Iterable, Iterator
from multiprocessing.connection import Connection
from typing import Any, Callable

import torch.utils.data

from . import _errors
from ._batches import run, untag
from ._errors import StagerError, UnreachableError, UsageError
from ._feed import Feed, Item
from ._formats import Samples, open_samples
from ._order import Order, Tagged, Whole

__all__ = ["SampleDataset", "ShardDataset", "loader"]


def _worker() -> Any:
    """Returns the id and num_workers of this worker, or None outside of one. PyTorch declares neither."""
    return torch.utils.data.get_worker_info()


class _Dataset(torch.utils.data.IterableDataset):  # type: ignore[type-arg, misc, unused-ignore]
    """A dataset of an input, for loader."""

    def __init__(self, input: str, order: Order | Whole, **options: Any) -> None:
        super().__init__()
        self.input, self._order, self._options = input, order, options
        self._feed: Feed | None = None
        self._ends: list[Connection] = []  # of workers
        self._pass, self._block, self._parent = 0, 1, 0

    def feed(self) -> Feed:
        if self._feed is None:
            self._feed = Feed(self.input, **self._options)
        return self._feed

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feed": None}

    def __iter__(self) -> Iterator[Tagged]:
        info = _worker()
        if info is not None:
            _end_with(self._parent)
        number = self._pass
        if number == 0 or (info is not None and not self._ends):
            raise UsageError(
                f"the dataset of input {self.input} needs stager.torch.loader(dataset, …) in place of DataLoader(dataset, …): without it nobody"
                " reports which samples were used"
            )
        if info is None:
            return self._order.samples(lambda n: self.feed().get(number, n), 0, 1, self._block)
        self._pass += 1  # of workers that persist
        end = self._ends[info.id]
        return self._order.samples(lambda n: _ask(end, self._parent, number, n), info.id, info.num_workers, self._block)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position of the training loop. In a worker, which does not know it, nothing."""
        return {} if _worker() is not None else self.feed().state()

    def load_state_dict(self, state: Any) -> None:
        if _worker() is None:
            self.feed().load(state)


class SampleDataset(_Dataset):
    """The samples of an input: of tar archives as WebDataset packs them, JSON lines, Parquet (with pyarrow), directories and other files.

    Their order is the same for any number of workers. decode is applied to each sample in a worker; it leaves out those for which it returns
    None. shuffle is the number of samples in the shuffle buffer, and seed decides its order. open reads other kinds of shards.
    The options group, reader, socket, patience and timeout are those of stager.shards.
    """

    def __init__(
        self, input: str, *, decode: Callable[[Any], Any] | None = None, shuffle: int = 0, seed: int = 0,
        open: Callable[[str], Samples] = open_samples, group: int | None = None, reader: str | None = None, socket: str | None = None,
        patience: float = 600.0, timeout: float = 3600.0,
    ) -> None:  # fmt: skip
        order = Order(open, decode, shuffle, seed)
        super().__init__(input, order, group=group, reader=reader, socket=socket, patience=patience, timeout=timeout)
        self._mixes = shuffle > 1


class ShardDataset(_Dataset):
    """The samples that read yields for the path of each shard. It reads a shard from beginning to end, and each worker takes a shard in turn.

    >>> def read(path):  # doctest: +SKIP
    ...     return wds.DataPipeline([{"url": path}], wds.tarfile_to_samples(), wds.decode("torch"))
    >>> dataset = ShardDataset("train", read)  # doctest: +SKIP

    The window needs room for two shards for each worker. read must yield the same samples each time: that is how the rest of a shard is found.
    """

    def __init__(
        self, input: str, read: Callable[..., Iterable[Any]], *, group: int | None = None, reader: str | None = None, socket: str | None = None,
        patience: float = 600.0, timeout: float = 3600.0,
    ) -> None:  # fmt: skip
        super().__init__(input, Whole(read), group=group, reader=reader, socket=socket, patience=patience, timeout=timeout)
        self._mixes = True


_watching = 0  # the process that ends with its training process


def _end_with(parent: int) -> None:
    """Has this worker end with the training process; 0 is an unknown one.

    PyTorch does so, too, but asks for its parent after this. A worker that starts while the training process is killed would take its new
    parent for it, and never end.
    """
    global _watching
    if parent and _watching != os.getpid():
        _watching = os.getpid()
        threading.Thread(target=_watch, args=(parent,), name="stager", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _ask(end: Connection, parent: int, number: int, n: int) -> Item | None:
    """Asks the training process for a shard."""
    end.send((number, n))
    while not end.poll(1.0):
        if parent and os.getppid() != parent:
            raise UnreachableError("the training process has ended")
    answer = end.recv()
    if isinstance(answer, tuple) and answer and answer[0] == "error":
        raise getattr(_errors, answer[1], StagerError)(answer[2])
    return None if answer is None else Item(*answer)


def _serve(feed: Feed, end: Connection) -> None:
    """Answers a worker until it ends."""
    while True:
        try:
            number, n = end.recv()
            answer: Any
            try:
                item = feed.get(number, n)
                answer = None if item is None else tuple(item._replace(path=str(item.path)))
            except StagerError as err:
                answer = ("error", type(err).__name__, str(err))
            end.send(answer)
        except (OSError, EOFError):
            return


class _Collate:
    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self.inner = inner

    def __call__(self, batch: Any) -> Any:
        if isinstance(batch, Tagged):  # batch_size=None
            return self.inner(batch.value), [list(t) for t in batch.tags]
        values, tags = untag(batch)
        return self.inner(values), [list(t) for t in tags]


def _plain(batches: Iterable[Any]) -> Generator[Any, None, None]:
    """Raises an error of a worker with its own sentence. A DataLoader puts the worker's traceback before it, which is the cause."""
    try:
        yield from batches
    except StagerError as err:
        _, named, sentence = str(err).rpartition(f"{type(err).__module__}.{type(err).__qualname__}: ")
        if not named:
            raise
        raise type(err)(sentence.strip()) from err


class _Loader:
    """What loader adds to a DataLoader."""

    def __init__(self, dataset: _Dataset, **options: Any) -> None:
        if not isinstance(dataset, _Dataset):
            copied = ": what load_dataset returns without streaming=True is a copy of the whole data set, outside of the window; use stager.hf.dataset"
            of_hf = type(dataset).__module__.partition(".")[0] == "datasets"
            raise UsageError(f"stager.torch.loader takes a SampleDataset or a ShardDataset, not {type(dataset).__name__}{copied if of_hf else ''}")
        size = options.get("batch_size", 1)
        dataset._block = size or 1
        inner = options.pop("collate_fn", None) or (
            torch.utils.data.default_collate if size is not None else torch.utils.data._utils.collate.default_convert  # type: ignore[attr-defined, unused-ignore]
        )
        super().__init__(dataset, collate_fn=_Collate(inner), **options)  # type: ignore[call-arg]
        self._stager, self._serving = dataset, False
        dataset.feed().mixes = dataset._mixes if isinstance(dataset, (SampleDataset, ShardDataset)) else True

    def __iter__(self) -> Iterator[Any]:
        dataset, feed = self._stager, self._stager.feed()
        dataset._pass = number = feed.begin(started=False)
        workers, persist = getattr(self, "num_workers", 0), getattr(self, "persistent_workers", False)
        if workers and not (self._serving and persist):
            context = getattr(self, "multiprocessing_context", None) or multiprocessing
            pairs = [context.Pipe() for _ in range(workers)]
            dataset._ends = [theirs for _, theirs in pairs]
            # What a fork server starts is its own child.
            dataset._parent = 0 if context.get_start_method() == "forkserver" else os.getpid()
            for mine, _ in pairs:
                threading.Thread(target=_serve, args=(feed, mine), name="stager", daemon=True).start()
            self._serving = True
        batches = None
        try:
            batches = _plain(super().__iter__())  # type: ignore[misc]
            feed.start()  # while the workers start: it waits for the source to be listed
        except BaseException:
            feed.leave()
            if batches is not None:
                batches.close()  # ends the workers
            raise
        return run(feed, number, ((batch, [(int(n), int(i), int(total)) for n, i, total in tags]) for batch, tags in batches))

    @property
    def epoch(self) -> int:
        """The epoch of the next pass; within a pass, that of the pass."""
        self._stager.feed().start()
        return self._stager.feed().epoch

    @property
    def samples_seen(self) -> int:
        """The number of samples that this process was given since the job began, for stager.commit."""
        return self._stager.feed().seen()

    def state_dict(self) -> dict[str, Any]:
        """Returns the position behind the last batch, as JSON to keep with a checkpoint."""
        return self._stager.feed().state()

    def load_state_dict(self, state: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Continues at a position, or at those of all processes of the job, with any number of workers."""
        self._stager.feed().load(state)


def loader(dataset: SampleDataset | ShardDataset, *, cls: Any = torch.utils.data.DataLoader, **options: Any) -> Any:
    """Returns a DataLoader of the dataset that reports used samples. It has epoch, samples_seen, state_dict and load_state_dict.

    The options are those of DataLoader; cls is the class of the loader, such as torchdata's StatefulDataLoader.

    >>> data = loader(dataset, batch_size=64, num_workers=4)  # doctest: +SKIP
    >>> for epoch in range(data.epoch, 3):  # doctest: +SKIP
    ...     for batch in data:
    ...         train_on(batch)
    """
    return type(cls.__name__, (_Loader, cls), {})(dataset, **options)
