"""Batches from a window, for whatever takes an iterator: JAX, tf.data, a plain loop.

    for batch in batches("train", epoch=0, size=256, decode=decode):
        state = step(state, batch)            # a jitted step takes NumPy arrays as they are

    tf.data.Dataset.from_generator(lambda: batches("train", 0, 256, decode), output_signature=...)

A sample is what has one name before its first dot: of a tar shard as WebDataset packs
it, or of a directory (window: {items: directories} or bundles). It comes as a dictionary of
bytes by the rest of the name. Copy this file and change it; it needs stager
and nothing else.

    python3 generator.py train 2 64           # two epochs in batches of 64: prints their samples
"""

import itertools
import os
import sys
import tarfile

from stager import shards


def files(path):
    """The names and bytes of a shard's files, in its order."""
    if os.path.isdir(path):
        for directory, below, names in os.walk(path):
            below.sort()
            for name in sorted(names):
                with open(os.path.join(directory, name), "rb") as file:
                    yield os.path.relpath(file.name, path), file.read()
        return
    with tarfile.open(path) as archive:
        for member in archive:
            if member.isfile():
                yield member.name, archive.extractfile(member).read()


def samples(path):
    """The samples of a shard: {"key": "dogs/0007", "jpg": b"...", "cls": b"3"}."""

    def key(file):
        directory, name = os.path.split(file[0])
        return os.path.join(directory, name.split(".", 1)[0])

    for name, group in itertools.groupby(files(path), key):
        yield {"key": name, **{file[len(name):].lstrip("."): body for file, body in group}}


def batches(input, epoch, size, decode=lambda samples: samples):
    """An epoch in batches of so many samples; the last may be smaller.

    A shard is acknowledged when the one behind the next is asked for, not when its last
    sample has been read: those may wait in a batch that nobody has trained on. So no
    shard should hold less than a batch, or ack_lag be more.
    """
    every = itertools.chain.from_iterable(samples(path) for path in shards(input, epoch=epoch, ack_lag=1))
    while batch := list(itertools.islice(every, size)):
        yield decode(batch)


def main(input, epochs, size):
    for epoch in range(int(epochs)):
        for batch in batches(input, epoch, int(size)):
            print(epoch, len(batch), *(s["key"] + ":" + "+".join(sorted(s.keys() - {"key"})) for s in batch))


if __name__ == "__main__":
    main(*sys.argv[1:])
