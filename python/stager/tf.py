"""TensorFlow: a window through tf.data, and each sample once.

    data = stager.tf.dataset("train", signature, decode=decode, shuffle=1000, seed=7).map(augment, num_parallel_calls=8).batch(64).prefetch(4)
    for batch in data:
        step(batch)
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import itertools
import weakref
from collections.abc import Iterator
from typing import Any, Callable

import tensorflow as tf  # type: ignore[import-not-found, import-untyped, unused-ignore]

from ._batches import Position, run
from ._errors import UsageError
from ._feed import Feed, Tag
from ._formats import Samples, open_samples
from ._order import Order

__all__ = ["Dataset", "dataset"]

_EACH = frozenset(("batch", "prefetch", "ragged_batch", "with_options"))  # methods that keep the number of each sample
_REFUSED = {
    "cache": "use a larger window", "filter": "decode leaves out those for which it returns None", "repeat": "the plan has the number of epochs",
    "shard": "the plan has the parts of nodes", "shuffle": "use the options shuffle and seed of stager.tf.dataset",
    "skip": "load_state_dict skips what was used", "take": "leave the training loop when it has enough",
}  # fmt: skip

_passes: weakref.WeakSet[Any] = weakref.WeakSet()


def _close() -> None:
    """Ends passes that an exception left: TensorFlow would wait for their threads for ever when the interpreter ends."""
    for passing in list(_passes):
        with contextlib.suppress(ValueError):  # another thread is in it
            passing.close()


atexit.register(_close)


class Dataset(Position):
    """The samples of an input with methods of a tf.data.Dataset; see stager.tf.dataset."""

    def __init__(self, feed: Feed, order: Order, signature: Any) -> None:
        self._feed, self._order, self._signature = feed, order, signature
        self._steps: tuple[Callable[[Any], Any], ...] = ()

    def map(self, function: Callable[..., Any], **options: Any) -> Dataset:
        """Returns the dataset with a function applied to each sample, or to each batch after batch."""

        def numbered(number: Any, value: Any) -> tuple[Any, Any]:
            return number, function(*value) if type(value) is tuple else function(value)

        return self._then(lambda made: made.map(numbered, **options))

    def padded_batch(self, batch_size: int, padded_shapes: Any = None, padding_values: Any = None, **options: Any) -> Dataset:
        """Returns the dataset in batches whose samples have one shape."""
        shapes = None if padded_shapes is None else ((), padded_shapes)
        values = None if padding_values is None else (None, padding_values)
        return self._then(lambda made: made.padded_batch(batch_size, shapes, values, **options))

    def __getattr__(self, name: str) -> Any:
        if name in _EACH:
            return lambda *args, **options: self._then(lambda made: getattr(made, name)(*args, **options))
        if name in _REFUSED:
            raise UsageError(f"stager.tf.dataset has no {name}: {_REFUSED[name]}")
        raise AttributeError(f"stager.tf.dataset has no {name}; it has map, padded_batch, {', '.join(sorted(_EACH))}")

    def _then(self, step: Callable[[Any], Any]) -> Dataset:
        new = copy.copy(self)
        new._steps = (*self._steps, step)
        return new

    def __iter__(self) -> Iterator[Any]:
        feed, tags, failures = self._feed, dict[int, list[Tag]](), list[BaseException]()
        number = feed.begin()

        def samples() -> Iterator[Any]:  # in a thread of TensorFlow, ahead of the training loop
            try:
                for n, sample in zip(itertools.count(), self._order.samples(lambda n: feed.get(number, n))):
                    tags[n] = sample.tags
                    yield n, sample.value
            except BaseException as err:  # TensorFlow would replace its class
                if not isinstance(err, GeneratorExit):
                    failures.append(err)

        made = tf.data.Dataset.from_generator(samples, output_signature=(tf.TensorSpec((), tf.int64), self._signature))
        for step in self._steps:
            made = step(made)

        def batches() -> Iterator[tuple[Any, list[Tag]]]:
            for numbers, value in made:
                yield value, [tag for n in numbers.numpy().reshape(-1) for tag in tags.pop(int(n))]
            if failures:
                raise failures[0]

        passing = run(feed, number, batches())
        _passes.add(passing)
        return passing


def dataset(
    input: str, output_signature: Any, *, decode: Callable[[Any], Any] | None = None, shuffle: int = 0, seed: int = 0,
    open: Callable[[str], Samples] = open_samples, group: int | None = None, reader: str | None = None, socket: str | None = None,
    patience: float = 600.0, timeout: float = 3600.0,
) -> Dataset:  # fmt: skip
    """Returns the samples of an input with the methods map, batch, padded_batch, ragged_batch, prefetch and with_options of a tf.data.Dataset.

    Each pass is an epoch. A batch is used when the training loop requests the next one, whatever the depth of prefetch, and a shard is acknowledged when
    all its samples were used, so a kill loses none. It has epoch, samples_seen, state_dict and load_state_dict. Iterate it: what takes
    a tf.data.Dataset itself, such as model.fit, reads ahead and does not report what it uses; call model.train_on_batch(*batch).

    output_signature describes what decode returns, as that of tf.data.Dataset.from_generator. The other options are those of stager.batches.

    >>> signature = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int64))  # doctest: +SKIP
    >>> data = dataset("train", signature, decode=decode).batch(64).prefetch(4)  # doctest: +SKIP
    """
    feed = Feed(input, group=group, reader=reader, socket=socket, patience=patience, timeout=timeout)
    feed.mixes = shuffle > 1
    return Dataset(feed, Order(open, decode, shuffle, seed), output_signature)
