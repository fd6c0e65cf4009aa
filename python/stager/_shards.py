"""The shards of an input, each leased by the process that iterates."""

from __future__ import annotations

import collections
import contextlib
import http.client
import itertools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ._arrow import warn_of_builder
from ._daemon import WAIT_S, Daemon, Heartbeat, log, quote
from ._errors import StagerError, UsageError, WaitTimeoutError


class Shard(str):
    """The absolute path of a shard's file, with its properties."""

    epoch: int
    position: int  # in the epoch's order
    size: int  # bytes
    samples: int  # 0: unknown
    digest: str  # "" if unknown
    attempt: int  # above 1: it was delivered before, to a reader that did not acknowledge it
    skip: int  # number of first samples that the restored checkpoint has already used
    lease: str
    _refusal: str | None
    _reader: _Reader | None

    @classmethod
    def of(cls, answer: Mapping[str, Any], reader: _Reader | None = None) -> Shard:
        shard = cls(answer["path"])
        shard.epoch, shard.position = answer["epoch"], answer["pos"]
        shard.size, shard.samples = answer.get("size", 0), answer.get("samples", 0)
        shard.digest, shard.attempt, shard.skip = answer.get("digest", ""), answer["attempt"], answer.get("skip", 0)
        shard.lease, shard._refusal, shard._reader = answer["lease"], None, reader
        return shard

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)  # another process has the path, not the lease

    def ack(self) -> None:
        """Acknowledges the shard now. Its file may be removed at once."""
        if self._reader is not None:
            self._reader.finish(self)

    def nack(self, reason: str) -> None:
        """Refuses the shard now: it goes to another reader. Three refusals end the input."""
        self._refusal = reason
        self.ack()

    def refuse(self, reason: str) -> None:
        """Refuses the shard when the next one is requested, instead of acknowledging it."""
        self._refusal = reason


class shards:  # lower case: used like a function
    """The shards of an input: each pass over them is an epoch.

    epoch    The epoch to read. A worker that comes when it is over gets nothing,
             instead of shards of the next; set it where several workers read.
    early    End the pass as soon as others hold the rest of the epoch, which a loader needs that takes batches
             from its workers in turn: they would wait for each other. By default so in PyTorch's DataLoader.
    ack_lag  How many shards behind to acknowledge, for loaders that use a file, or samples of it,
             after they have requested the next. When nothing else is left, or no room, fewer.
             In the workers of a PyTorch DataLoader it is required, because a shard is acknowledged there while its
             samples wait in the loader's queues: a kill loses those of more than ack_lag shards. stager.torch loses none.
    group    The reader's, from 0, where the window has groups: each gets every shard.
    reader   The name in logs and the status. It must be this process's alone.
    socket   The daemon's; by default $STAGER_SOCKET.
    patience How long, in seconds, to wait for a daemon that does not respond.
    timeout  How long, in seconds, to wait for a shard from a daemon that responds. A wait is logged every 30 s.

    It is a context manager that returns, at its end, the shards of passes that were left early:

    >>> with shards("train", epoch=0) as source:  # doctest: +SKIP
    ...     for path in source:
    ...         train_on(path)
    """

    input: str
    epoch: int | None
    early: bool | None
    ack_lag: int | None
    group: int | None
    reader: str | None
    socket: str | None
    patience: float
    timeout: float

    def __init__(
        self, input: str, *, epoch: int | None = None, early: bool | None = None, ack_lag: int | None = None,
        group: int | None = None, reader: str | None = None, socket: str | None = None, patience: float = 600.0,
        timeout: float = 3600.0,
    ) -> None:  # fmt: skip
        if ack_lag is not None and ack_lag < 0:
            raise UsageError(f"ack_lag is {ack_lag}; it cannot be negative")
        self.input, self.epoch, self.early, self.ack_lag = input, epoch, early, ack_lag
        self.group, self.reader, self.socket, self.patience, self.timeout = group, reader, socket, patience, timeout
        self._passes: list[_Pass] = []

    def __iter__(self) -> Iterator[Shard]:
        own = _Pass(self)
        self._passes = [p for p in self._passes if not p.over] + [own]
        return own

    def __enter__(self) -> shards:
        return self

    def __exit__(self, *_: object) -> None:
        for own in self._passes:
            own.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_passes": []}  # a spawned worker has passes of its own


class _Pass(Iterator[Shard]):
    """One pass. A process that is forked in mid-pass continues with a reader of its own."""

    def __init__(self, of: shards) -> None:
        self.of, self.over, self.lock = of, False, threading.Lock()
        self.reader: _Reader | None = None

    def __next__(self) -> Shard:
        if self.reader is not None and self.reader.pid != os.getpid():
            self.reader, self.lock = None, threading.Lock()  # the parent keeps what it holds
        with self.lock:
            if self.over:
                raise StopIteration
            if self.reader is None:
                self.reader = _Reader(self.of)
            try:
                shard = self.reader.next()
            except BaseException:
                self._end()
                raise
            if shard is None:
                self._end()
                raise StopIteration
            return shard

    def _end(self) -> None:
        self.over = True
        if self.reader is not None and self.reader.pid == os.getpid():
            self.reader.close()

    def close(self) -> None:
        """Returns what is held."""
        if self.reader is None or self.reader.pid == os.getpid():
            with self.lock:
                if not self.over:
                    self._end()

    def __del__(self) -> None:
        if not sys.is_finalizing():
            self.close()


class _Reader:
    """A connection and the leases that are bound to it."""

    _count = itertools.count()

    def __init__(self, of: shards) -> None:
        self.of, self.pid, self.lag = of, os.getpid(), of.ack_lag or 0
        in_loader = _in_dataloader()
        if in_loader and of.ack_lag is None:
            raise UsageError(
                f"in a worker of a DataLoader, shards of input {of.input} would be acknowledged while their samples wait in queues, and a kill would"
                " lose those: use stager.torch.loader, which loses none, or set ack_lag, and accept the loss of what the queues hold beyond it"
            )
        warn_of_builder(of.input)
        name = of.reader or f"{socket.gethostname()[:64]}-{self.pid}-{next(self._count)}"
        early = in_loader if of.early is None else of.early
        self.query = {"reader": name, "end": "early" if early else "all"}
        self.query.update({k: str(v) for k, v in (("epoch", of.epoch), ("group", of.group)) if v is not None})
        self.held: collections.deque[Shard] = collections.deque()
        self.daemon = Daemon(of.socket, of.patience, self._rebind)

    def next(self) -> Shard | None:
        while len(self.held) > self.lag:
            self.finish(self.held[0])
        path, wait = f"/v1/inputs/{quote(self.of.input)}/lease", 0.0 if self.held else WAIT_S
        waiting = Heartbeat(f"a shard of input {self.of.input}")
        while True:
            code, headers, answer = self.daemon.call("POST", path, {**self.query, "wait": f"{min(wait, self.of.timeout):g}s"}, bind=True)
            if code == http.client.NO_CONTENT:
                cause = headers.get("Stager-Wait-Cause")
                waiting.beat(cause)
                if self.held and cause in ("readers", "budget"):
                    self.finish(self.held[0])  # others wait for it, or for its space
                elif waiting.waited() > self.of.timeout:
                    raise WaitTimeoutError(f"no shard of input {self.of.input} within {self.of.timeout:g} s: {cause}")
                wait = 0.25 if self.held else WAIT_S
            elif not answer.get("end"):
                self.held.append(Shard.of(answer, self))
                return self.held[-1]
            elif self.of.epoch is None or answer["epoch"] >= self.of.epoch:
                while self.held:
                    self.finish(self.held[0])
                return None
            else:  # others hold shards of an epoch before
                why = f"readers that hold shards of epoch {answer['epoch']}"
                waiting.beat(why)
                if waiting.waited() > self.of.timeout:
                    raise WaitTimeoutError(f"no shard of input {self.of.input} within {self.of.timeout:g} s: {why}")
                time.sleep(0.1)

    def finish(self, shard: Shard, verb: str = "ack") -> None:
        if self.pid != os.getpid() or not any(shard is s for s in self.held):
            return  # finished before, or another process's
        self.held = collections.deque(s for s in self.held if s is not shard)
        if shard._refusal is not None:
            self.daemon.end_lease(shard.lease, "nack", {"reason": shard._refusal}, shard)
        else:
            self.daemon.end_lease(shard.lease, verb, {}, shard)

    def _rebind(self) -> None:
        """Binds to a new connection what was leased on the one before."""
        for shard in list(self.held):
            if not self.daemon.rebind(shard.lease, shard):
                self.held.remove(shard)

    def close(self) -> None:
        """Returns what is held, through no fault of the shards."""
        self.daemon.patience = 0.0
        with contextlib.closing(self.daemon), contextlib.suppress(StagerError):
            while self.held:  # if it fails, the end of the connection returns them
                self.finish(self.held[0], "return")


def _in_dataloader() -> bool:
    return "torch.utils.data" in sys.modules and sys.modules["torch.utils.data"].get_worker_info() is not None


__all__ = ["Shard", "log", "shards"]
