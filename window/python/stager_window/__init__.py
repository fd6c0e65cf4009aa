"""Shards from stager's rolling window, as plain file names.

    for path in shards("train"):
        train_on(path)

Each pass over ``shards`` is an epoch. It leases shards from the daemon, one at a
time, and yields the names of their files; asking for the next acknowledges the one
before, and stager then removes it. A shard is never lost: the lease lives as long as
its connection, and when the kernel closes that, the shard goes to another reader.

An object of class ``shards`` connects when it is iterated, in the process that
iterates it: hand it to the workers of a loader, forked or spawned. A daemon that
restarts is waited for, and the leases are taken along. Standard library only.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import http.client
import itertools
import json
import logging
import os
import socket
import sys
import time
import urllib.parse
import weakref
from typing import Any, Callable, Dict, Iterator, Mapping, Tuple

__all__ = ["Shard", "StagerError", "UnreachableError", "commit", "cursor", "resume", "shards", "status"]
__version__ = "0.1.0"
_log = logging.getLogger(__name__)
_quote = functools.partial(urllib.parse.quote, safe="")
_WAIT_S = 30.0  # timeout of one request for a shard
_Answer = Tuple[int, http.client.HTTPMessage, Dict[str, Any]]  # code, headers, JSON


class StagerError(RuntimeError):
    """The daemon refuses, and says why. Of its codes 4xx is the caller's to mend."""

    def __init__(self, code: int, words: str) -> None:
        super().__init__(words)
        self.code = code  # HTTP status


class UnreachableError(ConnectionError):
    """No daemon answered for as long as was waited."""


class Shard(str):
    """The absolute path of a shard's file, with what is known of it."""

    epoch: int
    position: int  # in the epoch's order
    size: int  # bytes
    samples: int  # 0: unknown
    digest: str  # "" if unknown
    attempt: int  # above 1: it was delivered before, to a reader that did not acknowledge it
    skip: int  # number of first samples that the restored checkpoint has already used
    _lease: str
    _refusal: str | None

    @classmethod
    def _of(cls, answer: Mapping[str, Any]) -> Shard:
        shard = cls(answer["path"])
        shard.epoch, shard.position = answer["epoch"], answer["pos"]
        shard.size, shard.samples = answer.get("size", 0), answer.get("samples", 0)
        shard.digest, shard.attempt, shard.skip = answer.get("digest", ""), answer["attempt"], answer.get("skip", 0)
        shard._lease, shard._refusal = answer["lease"], None
        return shard

    def refuse(self, reason: str) -> None:
        """Say that the shard cannot be used. When the next one is asked for, it goes
        to another reader instead of being acknowledged; three refusals end the input."""
        self._refusal = reason


class shards:  # lower case: used like a function
    """The shards of an input: each pass over them is an epoch.

    epoch    The epoch to read. A worker that comes when it is over gets nothing,
             instead of shards of the next; give it where several workers read.
    early    End the pass as soon as others hold the rest of the epoch, which a loader needs that takes batches
             from its workers in turn: they would wait for each other. By default so in PyTorch's DataLoader.
    ack_lag  How many shards behind to acknowledge, for loaders that go on using a file, or samples of it,
             after they have asked for the next. When nothing else is left, or no room, fewer.
    group    The reader's, from 0, where the window has groups: each gets every shard.
    reader   The name in logs and the status. It must be this process's alone.
    socket   The daemon's; by default $STAGER_SOCKET.
    patience How long, in seconds, to wait for a daemon that does not answer.
    """

    def __init__(
        self, input: str, *, epoch: int | None = None, early: bool | None = None, ack_lag: int = 0,
        group: int | None = None, reader: str | None = None, socket: str | None = None, patience: float = 600.0,
    ) -> None:
        if ack_lag < 0:
            raise ValueError(f"ack_lag is {ack_lag}; it cannot be negative")
        self.input, self.epoch, self.early, self.ack_lag = input, epoch, early, ack_lag
        self.group, self.reader, self.socket, self.patience = group, reader, socket, patience

    def __iter__(self) -> Iterator[Shard]:
        own = _Reader(self)
        try:
            while (shard := own.next()) is not None:
                yield shard
                if own.pid != os.getpid():
                    own = _Reader(self)  # forked in mid-epoch: the parent keeps what it holds
        finally:
            if own.pid == os.getpid():
                own.close()


class _Reader:
    """One pass: a connection and the leases that are bound to it."""

    _count = itertools.count()

    def __init__(self, of: shards) -> None:
        self.of, self.pid = of, os.getpid()
        name = of.reader or f"{socket.gethostname()[:64]}-{self.pid}-{next(self._count)}"
        early = _in_dataloader() if of.early is None else of.early
        self.query = {"reader": name, "end": "early" if early else "all"}
        self.query.update({k: str(v) for k, v in (("epoch", of.epoch), ("group", of.group)) if v is not None})
        self.held: collections.deque[Shard] = collections.deque()
        self.daemon = _Daemon(of.socket, of.patience, self._take_along)

    def next(self) -> Shard | None:
        while len(self.held) > self.of.ack_lag:
            self._finish(self.held.popleft())
        path, wait = f"/v1/inputs/{_quote(self.of.input)}/lease", 0.0 if self.held else _WAIT_S
        while True:
            code, headers, answer = self.daemon.call("POST", path, {**self.query, "wait": f"{wait:g}s"}, bind=True)
            if code == http.client.NO_CONTENT:
                if self.held and headers.get("Stager-Wait-Cause") in ("readers", "budget"):
                    self._finish(self.held.popleft())  # others wait for it, or for its space
                wait = 0.25 if self.held else _WAIT_S
            elif not answer.get("end"):
                self.held.append(Shard._of(answer))
                return self.held[-1]
            elif self.of.epoch is None or answer["epoch"] >= self.of.epoch:
                while self.held:
                    self._finish(self.held.popleft())
                return None

    def _finish(self, shard: Shard, verb: str = "ack") -> None:
        refusal = {} if shard._refusal is None else {"reason": shard._refusal}
        try:
            self.daemon.call("POST", f"/v1/leases/{shard._lease}/{'nack' if refusal else verb}", refusal)
        except StagerError as err:
            if err.code != http.client.GONE:
                raise
            _log.warning("%s: the lease had ended, the shard is redelivered: %s", shard, err)

    def _take_along(self) -> None:
        """Binds to a new connection what was leased on the one before."""
        for shard in list(self.held):
            try:
                self.daemon.call_once("POST", f"/v1/leases/{shard._lease}/renew", {}, bind=True)
            except StagerError as err:
                if err.code != http.client.GONE:
                    raise
                self.held.remove(shard)
                _log.warning("%s: the lease ended with the connection, the shard is redelivered", shard)

    def close(self) -> None:
        """Gives back what is held, through no fault of the shards."""
        self.daemon.patience = 0.0
        with contextlib.closing(self.daemon), contextlib.suppress(StagerError, UnreachableError):
            while self.held:  # if it fails, the end of the connection returns them
                self._finish(self.held.popleft(), "return")


def _in_dataloader() -> bool:
    return "torch.utils.data" in sys.modules and sys.modules["torch.utils.data"].get_worker_info() is not None


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket. It never connects anew by itself: leases are bound to it."""

    auto_open = 0
    alive: weakref.WeakSet[_Connection] = weakref.WeakSet()

    def __init__(self, path: str) -> None:
        super().__init__("stager", timeout=_WAIT_S + 30.0)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.alive.add(self)
        self.sock.connect(self.path)


# A child closes its parent's connections: their end must depend on the parent alone.
os.register_at_fork(after_in_child=lambda: [c.close() for c in list(_Connection.alive)])


class _Daemon:
    """Calls that outlast a restart of the daemon, on one connection."""

    def __init__(self, path: str | None, patience: float, reconnected: Callable[[], None] = lambda: None) -> None:
        self.path = path or os.environ.get("STAGER_SOCKET") or _default_socket()
        self.patience, self.reconnected = patience, reconnected
        self.conn: _Connection | None = None

    def call(self, method: str, path: str, query: Mapping[str, str], body: Any = None, bind: bool = False) -> _Answer:
        """Calls until the daemon answers, or patience is over; a refusal is a StagerError."""
        until, pause = time.monotonic() + self.patience, 0.05
        while True:
            try:
                if self.conn is None:
                    self._connect()
                return self.call_once(method, path, query, body, bind)
            except StagerError as err:
                if err.code != http.client.SERVICE_UNAVAILABLE or time.monotonic() > until:
                    raise
                why: Exception = err
            except (OSError, http.client.HTTPException) as err:
                self.close()
                if time.monotonic() > until:
                    raise UnreachableError(f'cannot connect to stager on {self.path}; is "stager run" running? {err}') from err
                why = err
            if 1 <= pause < 2:  # only once
                _log.warning("waiting for stager on %s: %s", self.path, why)
            time.sleep(pause)
            pause = min(2 * pause, 2.0)

    def _connect(self) -> None:
        self.conn = _Connection(self.path)
        try:
            self.conn.connect()
            self.reconnected()
        except BaseException:
            self.close()
            raise

    def call_once(self, method: str, path: str, query: Mapping[str, str], body: Any = None, bind: bool = False) -> _Answer:
        assert self.conn is not None
        text = None if body is None else json.dumps(body)
        url, headers = f"{path}?{urllib.parse.urlencode(query)}", {"Stager-Bind": "connection"} if bind else {}
        self.conn.request(method, url, text, headers)
        response = self.conn.getresponse()
        raw = response.read()
        answer = json.loads(raw) if raw.startswith(b"{") else {}
        if response.status >= 400:
            raise StagerError(response.status, answer.get("error", f"the daemon returned {response.status}"))
        return response.status, response.headers, answer

    def close(self) -> None:
        if self.conn is not None:
            self.conn.close()
            self.conn = None


def _default_socket() -> str:
    mine = os.environ.get("XDG_RUNTIME_DIR")
    if not mine or os.geteuid() == 0 or os.access("/run/stager", os.W_OK):
        mine = "/run/stager"
    return os.path.join(mine, "stager.sock")


def _call(socket: str | None, method: str, path: str, query: Mapping[str, str], body: Any = None) -> _Answer:
    with contextlib.closing(_Daemon(socket, patience=30.0)) as daemon:
        return daemon.call(method, path, query, body)


def commit(
    output: str,
    path: str,
    *,
    step: int | None = None,
    samples_seen: int = 0,
    all_nodes: bool = False,
    wait: float = 0.0,
    socket: str | None = None,
) -> bool:
    """Say that the checkpoint at path is complete. When this returns it is held fast, so
    that path may be removed. With wait, in seconds, it tells whether it is in the store. samples_seen are
    those of this stager's that were used since the job began: who restores skips them, by Shard.skip.
    With all_nodes, the files of all nodes of the job are complete, not only those of this one."""
    order = {
        "path": path,
        "samplesSeen": samples_seen,
        **({} if step is None else {"step": step}),
        **({"allNodes": True} if all_nodes else {}),
    }
    return _call(socket, "POST", f"/v1/outputs/{_quote(output)}/commit", {"wait": f"{wait:g}s"}, order)[0] == http.client.OK


def cursor(input: str, go_on: Any = None, *, socket: str | None = None) -> Dict[str, Any]:
    """Where the input stands: JSON to keep with a checkpoint. Given such a cursor, or a list of those
    of all nodes, the input goes on there: every lease ends, and what came after is redelivered."""
    return _call(socket, "GET" if go_on is None else "PUT", f"/v1/inputs/{_quote(input)}/cursor", {}, go_on)[2]


def resume(directory: str, *, socket: str | None = None) -> Dict[str, Any] | None:
    """Has every input go on where the checkpoint stood that "stager restore" brought to directory, and
    returns its RESTORED.json. None says that nothing was restored: the job begins."""
    try:
        with open(os.path.join(directory, "RESTORED.json"), encoding="utf-8") as f:
            restored: Dict[str, Any] = json.load(f)
    except FileNotFoundError:
        return None
    for name, at in restored.get("cursors", {}).items():
        cursor(name, at, socket=socket)
    return restored


def status(socket: str | None = None) -> Dict[str, Any]:
    """What "stager status --json" prints."""
    return _call(socket, "GET", "/v1/status", {})[2]
