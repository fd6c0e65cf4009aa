"""Checkpoints of a training loop."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import Any

from . import _outputs
from ._daemon import Heartbeat, call, default_socket, quote
from ._errors import InputFailedError, UsageError, WaitTimeoutError, no_space_named
from ._staged import run

OPENING_S = 30.0  # how long a daemon that starts may take to open its outputs


class Checkpoint:
    """The checkpoints of an output; without a name, of the plan's only one.

    >>> ckpt = Checkpoint()  # doctest: +SKIP
    >>> with ckpt.save(step) as directory:  # doctest: +SKIP
    ...     torch.save(model.state_dict(), directory + "/model.pt")
    """

    socket: str | None

    def __init__(self, output: str | None = None, *, socket: str | None = None) -> None:
        self._output, self.socket = output, socket

    @property
    def output(self) -> str:
        wait = Heartbeat("the outputs of the plan")
        while self._output is None:
            status = _outputs.status(self.socket)
            names = [o["output"] for o in status.get("outputs", [])]
            if len(names) == 1:
                self._output = names[0]
            elif names or status.get("ready", True) or wait.waited() > OPENING_S:
                raise UsageError(f"the plan has {len(names)} outputs{': ' if names else ''}{', '.join(names)}; name one")
            else:
                time.sleep(0.1)
        return self._output

    def status(self) -> dict[str, Any]:
        """Returns the state of the output."""
        return call(self.socket, "GET", f"/v1/outputs/{quote(self.output)}", {})[2]

    @contextlib.contextmanager
    def save(self, step: int, *, samples_seen: int = 0, all_nodes: bool = False) -> Iterator[str]:
        """Yields a new directory for the files of a checkpoint. At the end of the block the checkpoint is complete, has the name
        step-N in the output's directory, and stager holds it. After an exception in the block it does not exist; a full disk raises
        NoSpaceError."""
        root = self.status()["dir"]
        final, part, old = (os.path.join(root, f"{name}step-{step}") for name in ("", f".new-{os.getpid()}-", f".old-{os.getpid()}-"))
        shutil.rmtree(part, ignore_errors=True)
        try:
            with no_space_named(f"step {step}", root):
                os.makedirs(part)
                yield part
                if os.path.lexists(final):  # of a run before, which stager holds if it was complete
                    os.rename(final, old)
                os.rename(part, final)
        except BaseException:
            if os.path.lexists(old) and not os.path.lexists(final):
                os.rename(old, final)
            raise
        finally:
            shutil.rmtree(part, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
        self.commit(final, step=step, samples_seen=samples_seen, all_nodes=all_nodes)

    def commit(self, path: str, *, step: int | None = None, samples_seen: int = 0, all_nodes: bool = False, wait: float = 0.0) -> bool:
        """Declares that the checkpoint at path is complete; see stager.commit."""
        return _outputs.commit(self.output, path, step=step, samples_seen=samples_seen, all_nodes=all_nodes, wait=wait, socket=self.socket)

    def wait_durable(self, step: int, timeout: float) -> int:
        """Waits until this step or a newer one is in the store, and returns which."""
        wait = Heartbeat(f"step {step} of output {self.output}")
        while True:
            at = self.status()
            committed = at.get("committed")
            if committed is not None and committed["step"] >= step:
                return int(committed["step"])
            for failed in at.get("failed", []):
                if failed.get("step") == step:
                    raise InputFailedError(f"step {step} of output {self.output} cannot be saved: {failed['reason']}")
            why = at.get("lastError") or ("it is being uploaded" if at.get("uploading") else "it is waiting")
            wait.beat(why)
            if wait.waited() > timeout:
                raise WaitTimeoutError(f"step {step} of output {self.output} is not in the store within {timeout:g} s: {why}")
            time.sleep(wait.pause())

    def latest(self) -> int | None:
        """Returns the newest step in the store, as far as the daemon knows, or None."""
        committed = self.status().get("committed")
        return None if committed is None else int(committed["step"])

    def restore(self, path: str, *, rewind: bool = True, timeout: float = 3600.0) -> dict[str, Any] | None:
        """Restores the newest valid checkpoint to path, and returns its RESTORED.json, or None if there is none. With rewind every input
        continues where the checkpoint stood. It runs the binary, with the credentials of this process."""
        destination = self.status()["destination"]
        run(f"restore to {path}", ["restore", "--quiet", "--optional", destination, path], timeout)
        if rewind:
            return _outputs.resume(path, socket=self.socket)
        with contextlib.suppress(FileNotFoundError), open(os.path.join(path, "RESTORED.json"), encoding="utf-8") as file:
            restored: dict[str, Any] = json.load(file)
            return restored
        return None


def checkpoint(step: int, *, output: str | None = None, samples_seen: int = 0, socket: str | None = None) -> contextlib.AbstractContextManager[str]:
    """Saves a checkpoint that is complete or absent: with stager.checkpoint(step) as directory."""
    return Checkpoint(output, socket=socket).save(step, samples_seen=samples_seen)


def preempted(*, socket: str | None = None) -> bool:
    """Reports whether the machine is about to be reclaimed, or the job to end: save now."""
    beside = os.path.join(os.path.dirname(socket or os.environ.get("STAGER_SOCKET") or default_socket()), "PREEMPT")
    return os.path.exists(os.environ.get("STAGER_PREEMPT") or beside)
