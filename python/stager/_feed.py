"""Shards for a training process, each acknowledged when all its samples were used.

The training process leases the shards itself, on one connection. Workers ask it for them, and read their files. So a worker
that is killed loses nothing, leases end at once with the training process, and workers that outlive it lease nothing.
"""

from __future__ import annotations

import collections
import contextlib
import http.client
import math
import os
import socket
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ._arrow import warn_of_builder
from ._daemon import Daemon, Heartbeat, cursor_call, log, quote
from ._errors import (
    InputFailedError,
    NotReadyError,
    RejectedError,
    RequestError,
    StagerError,
    UnreachableError,
    UsageError,
    WaitTimeoutError,
    WindowTooSmallError,
)
from ._shards import Shard

Tag = tuple[int, int, int]  # number of the shard in the pass, index of the sample or -1, number of samples in the shard or -1
Key = tuple[int, int]  # epoch and position
PAUSE_S = 0.1  # between requests that are answered at once
STALLED_S = 60.0  # how long a full window and a waiting trainer are no error
BEGINNING = "first-"  # begins the name of a list that is not complete


class Item(NamedTuple):
    """What a worker learns of a shard."""

    number: int
    path: str
    epoch: int
    used: list[list[int]]  # spans of samples that were used before this pass
    total: int  # number of samples of a shard that is acknowledged; -1: it is not


class _Open:
    """A shard that is being used."""

    def __init__(self, number: int, shard: Shard, used: set[int]) -> None:
        self.number, self.shard, self.lease, self.used, self.total = number, shard, shard.lease, used, -1
        self.before = spans(used)
        self.key: Key = (shard.epoch, shard.position)


def spans(numbers: Iterable[int]) -> list[list[int]]:
    """Returns sorted numbers as ranges, each with its first and last."""
    result: list[list[int]] = []
    for n in sorted(numbers):
        if result and n <= result[-1][1] + 1:
            result[-1][1] = max(result[-1][1], n)
        else:
            result.append([n, n])
    return result


def numbers(of: Iterable[Iterable[int]]) -> set[int]:
    return {n for first, last in of for n in range(first, last + 1)}


def union(a: list[list[int]], b: list[list[int]]) -> list[list[int]]:
    """Returns the union of two lists of spans."""
    result: list[list[int]] = []
    for first, last in sorted([*a, *b]):
        if result and first <= result[-1][1] + 1:
            result[-1][1] = max(result[-1][1], last)
        else:
            result.append([first, last])
    return result


class Feed:
    """The shards of an input in the training process."""

    def __init__(self, input: str, *, group: int | None, reader: str | None, socket: str | None, patience: float, timeout: float) -> None:
        self.input, self.group, self.socket, self.patience, self.timeout = input, group, socket, patience, timeout
        self.reader = reader or default_reader()
        self.mixes = False
        self.leaser, self.acker = Daemon(socket, patience, self._rebind), Daemon(socket, patience)
        self.cond, self.leasing, self.pid, self.acking = threading.Condition(), False, os.getpid(), threading.Lock()
        self.number = 0  # of the pass
        self.items: list[_Open] = []  # of this pass
        self.open: dict[Key, _Open] = {}
        self.acks: dict[str, Shard] = {}  # by lease, that are being acknowledged
        self.ended, self.active = False, False
        self.failure: StagerError | None = None
        self.pending: collections.deque[list[Tag]] = collections.deque()  # of the batches that were requested and not used
        self.ahead, self.ending = 0, False  # how many batches the trainer requests early; it has requested the end
        self.waiting = 0.0  # since when the trainer waits for a batch
        self.base: dict[str, Any] | None = None  # cursor at the start
        self.done: dict[int, set[int]] = {}  # finished positions by epoch
        self.known: dict[Key, set[int]] = {}  # used samples of shards that are to come again
        self.epoch, self.samples_seen = 0, 0

    def start(self) -> dict[str, Any]:
        """Fetches the position of the input, once."""
        if self.base is None:
            base = cursor_call(self.socket, "GET", f"/v1/inputs/{quote(self.input)}/cursor", {"beginning": "true"}, patience=self.patience)
            with self.cond:
                self.base, self.epoch = base, base["epoch"]
                self.cond.notify_all()
        return self.base

    def manifest(self, base: dict[str, Any], settled: dict[str, list[list[int]]]) -> str:
        """Returns the manifest for the positions in settled. While the source of the input is listed it is that of the first
        shards. Call it after the positions were read: there may be more shards afterwards."""
        known = str(base["manifest"])
        if not known.startswith(BEGINNING):
            return known
        try:
            now = cursor_call(self.socket, "GET", f"/v1/inputs/{quote(self.input)}/cursor", {"beginning": known}, patience=min(self.patience, 5.0))
        except (InputFailedError, NotReadyError, RejectedError, UnreachableError) as err:  # training goes on
            if isinstance(err, RejectedError) or not _within(settled, _length(known)):
                log.warning("the position of input %s cannot be restored: %s", self.input, err)
            return known
        base["manifest"] = now["manifest"]
        return str(now["manifest"])

    def own(self) -> None:
        """Rejects a forked process: it would acknowledge what its parent uses."""
        if self.pid != os.getpid():
            raise UsageError(f"the loader of input {self.input} belongs to the process that made it; make another in this one")

    def begin(self, started: bool = True) -> int:
        """Begins a pass over the current epoch, and returns its number. If not started, the caller calls start, for which get waits."""
        self.own()
        warn_of_builder(self.input)
        if started:
            self.start()
        if self.ending:
            self.finish()
        self.leave()
        with self.cond:
            self.number += 1
            self.items, self.ended, self.failure, self.active, self.waiting = [], False, None, True, time.monotonic()
            return self.number

    def get(self, number: int, n: int) -> Item | None:
        """Returns shard n of the pass, or None at its end. Any thread may call it."""
        while True:
            with self.cond:
                while (self.base is None or (self.leasing and n >= len(self.items))) and self.number == number and self.active:
                    self.cond.wait(1.0)
                if self.number != number or not self.active:
                    return None
                if n < len(self.items):
                    o = self.items[n]
                    return Item(o.number, o.shard, o.key[0], o.before, -1 if self.open.get(o.key) is o else o.total)
                if self.failure is not None:
                    raise self.failure
                if self.ended:
                    return None
                self.leasing = True
            shard, failure, again = None, None, False
            try:
                shard = self._lease(number)
            except StagerError as err:
                failure = err
            finally:
                with self.cond:
                    self.leasing = False
                    self.cond.notify_all()
            with self.cond:
                if self.number == number and self.active:
                    self.failure = failure
                    self.ended = shard is None and failure is None
                    again = shard is not None and shard.position in self.done.get(shard.epoch, ())
                    if shard is not None and not again:
                        self._add(shard)
                    if not again:
                        continue
            if shard is not None:  # the pass was left meanwhile, or its lease had ended before its acknowledgement came, and all its samples were used
                self._end(shard.lease, "ack" if again else "return", shard)

    def _end(self, lease: str, verb: str, shard: Shard) -> None:
        with self.acking:
            self.acker.end_lease(lease, verb, {}, shard)

    def _add(self, shard: Shard) -> None:
        key = (shard.epoch, shard.position)
        if key in self.open:  # its lease had ended while it was used: continue with the new one
            self.open[key].lease = shard.lease
            return
        used = self.known.pop(key, set()) | set(range(shard.skip))
        self.open[key] = _Open(len(self.items), shard, used)
        self.items.append(self.open[key])

    def _lease(self, number: int) -> Shard | None:
        query = {"reader": self.reader, "end": "early", "epoch": str(self.epoch), "wait": "5s"}
        if self.mixes:
            query["mixes"] = "true"
        if self.group is not None:
            query["group"] = str(self.group)
        waiting = Heartbeat(f"a shard of input {self.input}")
        while self.number == number and self.active:
            code, headers, answer = self.leaser.call("POST", f"/v1/inputs/{quote(self.input)}/lease", query, bind=True)
            if code != http.client.NO_CONTENT:
                if not answer.get("end"):
                    return Shard.of(answer)
                if answer["epoch"] >= self.epoch:
                    return None
                headers["Stager-Wait-Cause"] = f"readers that hold shards of epoch {answer['epoch']}"
                time.sleep(PAUSE_S)
            cause = headers.get("Stager-Wait-Cause")
            waiting.beat(cause)
            stalled = min(waiting.waited(), time.monotonic() - self.waiting) if self.waiting else 0.0
            if cause in ("budget", "readers") and self.open and stalled > STALLED_S:
                raise WindowTooSmallError(
                    f"the window of input {self.input} has no room for another shard, and none of the {len(self.open)} that this loader holds can be"
                    " released: their samples wait for others to fill a batch or the shuffle buffer; use a larger window, or smaller batches and buffer"
                )
            if waiting.waited() > self.timeout:
                raise WaitTimeoutError(f"no shard of input {self.input} within {self.timeout:g} s: {cause}")
        return None

    def _rebind(self) -> None:
        held = {**self.acks, **{o.lease: o.shard for o in list(self.open.values())}}
        for lease, shard in held.items():  # the daemon returns those that it hears nothing of
            self.leaser.rebind(lease, shard)

    def yielded(self, tags: list[Tag]) -> None:
        """Notes the samples of the batch that the trainer gets."""
        self.pending.append(tags)
        self.samples_seen += _count(tags)
        self.waiting = 0.0

    def use(self) -> None:
        """Notes that the trainer has used its batch: it requests the next one, or the one that is ahead batches later."""
        self.waiting = time.monotonic()
        with self.cond:
            tags = [t for _ in range(len(self.pending) - self.ahead) for t in self.pending.popleft()]
            finished = self._mark(tags, {o.number: o for o in self.open.values()})
            for o in finished:
                self.done.setdefault(o.key[0], set()).add(o.key[1])
                self.acks[o.lease] = self.open.pop(o.key).shard
        self._ack(finished)

    def _ack(self, finished: list[_Open]) -> None:
        for o in finished:
            self._end(o.lease, "ack", o.shard)
            self.acks.pop(o.lease, None)

    @staticmethod
    def _mark(tags: list[Tag], of: dict[int, _Open]) -> list[_Open]:
        touched = {}
        for n, i, total in tags:
            if n in of:
                touched[n] = of[n]
                if i >= 0:
                    of[n].used.add(i)
                if total >= 0:
                    of[n].total = total
        return [o for o in touched.values() if o.total >= 0 and len(o.used) >= o.total]

    def _in_hand(self) -> list[Tag]:
        """Returns the samples of the batch that the trainer has, without those that it only requested early."""
        batches = list(self.pending) if self.ending else list(self.pending)[: max(len(self.pending) - self.ahead, 0)]
        return [t for tags in batches for t in tags]

    def seen(self) -> int:
        """Returns how many samples the trainer was given since the job began."""
        return self.samples_seen - sum(map(_count, self.pending)) + _count(self._in_hand())

    def finish(self, now: bool = True) -> None:
        """Ends a pass whose samples were all used: also those that the loader left out, as it leaves out an incomplete last batch.
        A trainer that requests the end early uses the last batches first: then the pass ends with the next call."""
        if self.ahead and not now:
            self.ending = True
            return
        self.ending = False
        self.pending.clear()
        with self.cond:
            rest, self.active = list(self.open.values()), False
            for o in rest:
                self.done.setdefault(o.key[0], set()).add(o.key[1])
                self.acks[o.lease] = o.shard
            self.open = {}
            self.epoch += 1
            self.cond.notify_all()
        self._ack(rest)

    def leave(self) -> None:
        """Ends a pass early. The next pass continues in this epoch, with the samples that were not used."""
        if self.pid != os.getpid() or not self.active:
            return
        with self.cond:
            self.active = False
            self._keep(self._in_hand())
            self.samples_seen = self.seen()
            self.pending.clear()
            self.ending = False
            rest, self.open = list(self.open.values()), {}
            self.cond.notify_all()
        patience, self.acker.patience = self.acker.patience, 1.0
        with contextlib.suppress(StagerError):
            for o in rest:  # if it fails, the end of the connection returns them
                done = o.key[1] in self.done.get(o.key[0], ())
                self._end(o.lease, "ack" if done else "return", o.shard)
        self.acker.patience = patience

    def _keep(self, tags: list[Tag]) -> None:
        """Keeps which samples of open shards were used."""
        for o in self._mark(tags, {o.number: o for o in self.open.values()}):
            self.done.setdefault(o.key[0], set()).add(o.key[1])
        for key, o in self.open.items():
            if o.used and key[1] not in self.done.get(key[0], ()):
                self.known[key] = o.used

    def state(self) -> dict[str, Any]:
        """Returns the position behind the batch that the trainer has, as JSON."""
        base = self.start()
        with self.cond:
            open_ = {o.number: set(o.used) for o in self.open.values()}
            totals = {o.number: o.total for o in self.open.values()}
            for n, i, total in self._in_hand():
                if n in open_:
                    totals[n] = max(totals[n], total)
                    if i >= 0:
                        open_[n].add(i)
            done = {epoch: set(of) for epoch, of in self.done.items()}
            partial = {key: spans(of) for key, of in self.known.items()}
            for o in self.open.values():
                used = open_[o.number]
                if 0 <= totals[o.number] <= len(used):
                    done.setdefault(o.key[0], set()).add(o.key[1])
                elif used:
                    partial[o.key] = spans(used)
            finished = {e: union(base.get("settled", {}).get(str(e), []), spans(done.get(e, ()))) for e in {*done, *map(int, base.get("settled", {}))}}
            # Another process may still be in the epoch that this one has ended.
            cursor = {**base, "epoch": self.epoch, "settled": {str(e): of for e, of in finished.items() if e >= self.epoch - 1}}
            for gone in ("leased", "used", "again", "inOrder"):
                cursor.pop(gone, None)
        cursor["manifest"] = self.manifest(base, cursor["settled"])
        partial = {key: of for key, of in partial.items() if key[0] >= self.epoch}
        return {
            "stager": 1, "input": self.input, "samples_seen": self.seen(), "cursor": cursor,
            "partial": [[epoch, position, of] for (epoch, position), of in sorted(partial.items())],
        }  # fmt: skip

    def load(self, states: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Makes the input continue at a state, or at those of all processes of the job."""
        self.own()
        every = states if isinstance(states, list) else [states]
        if not every:
            raise RejectedError(f"there is no state of input {self.input} in the list")
        for s in every:
            if not _is_state(s) or s["input"] != self.input:
                named = s.get("input") if isinstance(s, dict) else None
                raise RejectedError(f"this is not a state of input {self.input}" + (f", but of {named}" if named and named != self.input else ""))
        cursors: dict[str, dict[str, Any]] = {}
        for s in every:
            cursor = dict(s["cursor"])
            other = cursors.get(cursor["part"])
            if other is not None:  # of another process beside the same stager
                first, last = sorted((cursor, other), key=lambda c: int(c["epoch"]))
                settled = {e: union(first["settled"].get(e, []), last["settled"].get(e, [])) for e in {*first["settled"], *last["settled"]}}
                longest = max(first, last, key=lambda c: _length(str(c.get("manifest"))))
                cursor = {**first, "settled": settled, "manifest": longest.get("manifest")}
            cursors[cursor["part"]] = cursor
        for cursor in cursors.values():
            cursor["settled"] = {e: of for e, of in cursor["settled"].items() if int(e) >= int(cursor["epoch"])}
        self.leave()
        self.base = cursor_call(self.socket, "PUT", f"/v1/inputs/{quote(self.input)}/cursor", {}, list(cursors.values()), self.patience)
        self.done, self.known = {}, {}
        for s in every:
            for epoch, position, of in s["partial"]:
                self.known.setdefault((epoch, position), set()).update(numbers(of))
        self.epoch, self.samples_seen = self.base["epoch"], every[0]["samples_seen"]


def _length(manifest: str) -> float:
    """Returns of how many shards a manifest is at least."""
    number = manifest.removeprefix(BEGINNING).split("-")[0]
    return int(number) if manifest.startswith(BEGINNING) and number.isdecimal() else math.inf


def _within(settled: dict[str, list[list[int]]], length: float) -> bool:
    """Reports whether all positions are those of so many shards."""
    return all(int(epoch) == 0 and last < length for epoch, of in settled.items() for _, last in of)


def _count(tags: list[Tag]) -> int:
    return sum(1 for _, i, _ in tags if i >= 0)


def _is_state(s: Any) -> bool:
    """Reports whether s has the form of what state returns."""
    try:
        cursor, partial = s["cursor"], s["partial"]
        return (
            s["stager"] == 1 and isinstance(s["input"], str) and isinstance(s["samples_seen"], int) and isinstance(cursor["part"], str)
            and isinstance(cursor["epoch"], int) and isinstance(cursor["settled"], dict)
            and all(isinstance(e, int) and isinstance(p, int) and isinstance(numbers(of), set) for e, p, of in partial)
        )  # fmt: skip
    except (TypeError, KeyError, ValueError):
        return False


def default_reader() -> str:
    """Returns a name that stays the same when the trainer is started again."""
    return f"{socket.gethostname()[:64]}-rank{os.environ.get('RANK') or os.environ.get('SLURM_PROCID') or 0}"


__all__ = ["Feed", "Item", "RequestError", "Tag", "default_reader"]
