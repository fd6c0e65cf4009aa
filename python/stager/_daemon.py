"""Calls to the daemon: HTTP/1.1 over its Unix socket."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import logging
import os
import socket
import time
import urllib.parse
import weakref
from collections.abc import Mapping
from typing import Any, Callable, ClassVar

from ._errors import AccessError, LeaseEndedError, NotReadyError, StagerError, UnreachableError, UsageError, VersionError, of_code
from ._version import __version__

log = logging.getLogger("stager")
quote = functools.partial(urllib.parse.quote, safe="")

API = 1  # version of the HTTP API that this client uses
WAIT_S = 30.0  # how long one request waits for a shard
HEARTBEAT_S = 30.0  # how often a wait is logged
TELL_S = 1.0  # after which a wait for the daemon is logged
Answer = tuple[int, http.client.HTTPMessage, dict[str, Any]]  # code, headers, JSON


class Heartbeat:
    """Logs a wait when it takes long, and again every 30 seconds."""

    def __init__(self, what: str) -> None:
        self.what, self.since, self.next = what, time.monotonic(), time.monotonic() + HEARTBEAT_S

    def waited(self) -> float:
        return time.monotonic() - self.since

    def pause(self) -> float:
        """Returns how long to pause before the next attempt: a quarter of what was waited, so that little time is lost."""
        return min(max(self.waited() / 4, 0.005), 2.0)

    def beat(self, why: object) -> None:
        if time.monotonic() >= self.next:
            self.next += HEARTBEAT_S
            log.warning("waiting for %s for %.0f s: %s", self.what, self.waited(), why)


class _PathTooLongError(Exception):
    pass


class _Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket. It never reconnects by itself: leases are bound to it."""

    auto_open = 0
    alive: ClassVar[weakref.WeakSet[_Connection]] = weakref.WeakSet()

    def __init__(self, path: str) -> None:
        super().__init__("stager", timeout=WAIT_S + 30.0)
        self.path = path

    def connect(self) -> None:
        if len(os.fsencode(self.path)) > 107:
            raise _PathTooLongError
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.alive.add(self)
        self.sock.connect(self.path)


# A child closes its parent's connections: their end must depend on the parent alone.
def _forked() -> None:
    for conn in list(_Connection.alive):
        conn.close()


os.register_at_fork(after_in_child=_forked)


class Daemon:
    """Calls on one connection, which survive a restart of the daemon."""

    def __init__(self, path: str | None, patience: float, reconnected: Callable[[], None] | None = None) -> None:
        self.conn: _Connection | None = None
        self.path = path or os.environ.get("STAGER_SOCKET") or default_socket()
        self.patience = patience
        self.reconnected = None if reconnected is None else weakref.WeakMethod(reconnected)  # its object has this one

    def call(self, method: str, path: str, query: Mapping[str, str], body: Any = None, bind: bool = False) -> Answer:
        """Calls until the daemon responds, or the patience is over."""
        wait, told = Heartbeat(f"stager on {self.path}"), False
        while True:
            try:
                if self.conn is None:
                    self._connect()
                return self.call_once(method, path, query, body, bind)
            except (AccessError, VersionError):
                self.close()
                raise
            except NotReadyError as err:
                if wait.waited() > self.patience:
                    raise
                why: Exception = err
            except StagerError:
                raise
            except _PathTooLongError as err:
                self.close()
                raise UsageError(f"a socket's path may have 107 bytes, and {self.path} has {len(os.fsencode(self.path))}; use a shorter one") from err
            except PermissionError as err:
                self.close()
                raise AccessError(f"this user may not open {self.path}; run the trainer as the owner or in the group of the socket") from err
            except (OSError, http.client.HTTPException, ValueError) as err:
                self.close()
                if wait.waited() > self.patience:
                    raise UnreachableError(f'cannot connect to stager on {self.path}; is "stager run" running? {err}') from err
                why = err
            if wait.waited() >= TELL_S and not told:
                log.warning("waiting for stager on %s: %s", self.path, why)
                told = True
            wait.beat(why)
            time.sleep(min(wait.pause(), max(self.patience - wait.waited(), 0.01)))

    def _connect(self) -> None:
        self.conn = _Connection(self.path)
        try:
            self.conn.connect()
            reconnected = None if self.reconnected is None else self.reconnected()
            if reconnected is not None:
                reconnected()
        except BaseException:
            self.close()
            raise

    def call_once(self, method: str, path: str, query: Mapping[str, str], body: Any = None, bind: bool = False) -> Answer:
        assert self.conn is not None
        text = None if body is None else json.dumps(body)
        url, headers = f"{path}?{urllib.parse.urlencode(query)}", {"Stager-Client": f"python/{__version__}"}
        if bind:
            headers["Stager-Bind"] = "connection"
        self.conn.request(method, url, text, headers)
        response = self.conn.getresponse()
        raw = response.read()
        self._check_version(response.headers.get("Stager-Api"))
        answer = json.loads(raw) if raw.startswith(b"{") else {}
        if response.status >= 400:
            err = of_code(response.status, answer.get("error", f"the daemon responded {response.status}"))
            err.listing = response.headers.get("Stager-Wait-Cause") == "listing"
            raise err
        return response.status, response.headers, answer

    def _check_version(self, api: str | None) -> None:
        if api == str(API):
            return
        this = f"version {__version__} of the Python package stager uses version {API} of the API"
        if api is None:
            raise VersionError(f"the daemon on {self.path} is older: {this}; update stager, or install the package of its version")
        raise VersionError(f"the daemon on {self.path} has version {api} of the API, and {this}; install the package of the daemon's version")

    def end_lease(self, lease: str, verb: str, query: Mapping[str, str], name: str) -> None:
        """Ends a lease. One that has ended before is logged."""
        try:
            self.call("POST", f"/v1/leases/{lease}/{verb}", query)
        except LeaseEndedError as err:
            log.warning("%s: the lease had ended, the shard is redelivered: %s", name, err)

    def rebind(self, lease: str, name: str) -> bool:
        """Binds a lease to a new connection. It returns false if the lease has ended."""
        try:
            self.call_once("POST", f"/v1/leases/{lease}/renew", {}, bind=True)
        except LeaseEndedError:
            log.warning("%s: the lease ended with the connection, the shard is redelivered", name)
            return False
        return True

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self.conn is not None:
            self.conn.close()
            self.conn = None


def default_socket() -> str:
    mine = os.environ.get("XDG_RUNTIME_DIR")
    if not mine or os.geteuid() == 0 or os.access("/run/stager", os.W_OK):
        mine = "/run/stager"
    return os.path.join(mine, "stager.sock")


def call(path: str | None, method: str, url: str, query: Mapping[str, str], body: Any = None, patience: float = 30.0) -> Answer:
    """Makes one call on a connection of its own."""
    with contextlib.closing(Daemon(path, patience)) as daemon:
        return daemon.call(method, url, query, body)


LIST_WAIT = "20s"  # how long one request waits until a source is listed


def cursor_call(path: str | None, method: str, url: str, query: Mapping[str, str], go_on: Any = None, patience: float = 30.0) -> dict[str, Any]:
    """Reads or sets the cursor of an input, which is at url. It has none before its source is listed, which is waited for: a
    listing ends, or the input fails."""
    wait = Heartbeat("the source of the input to be listed")
    while True:
        try:
            return call(path, method, url, {**query, "wait": LIST_WAIT}, go_on, patience=patience)[2]
        except NotReadyError as err:
            if not err.listing:
                raise
            wait.beat(err)
