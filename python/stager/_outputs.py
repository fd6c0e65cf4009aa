"""Checkpoints and positions."""

from __future__ import annotations

import http.client
import json
import os
from typing import Any

from ._daemon import call, cursor_call, quote


def commit(
    output: str, path: str, *, step: int | None = None, samples_seen: int = 0, all_nodes: bool = False, wait: float = 0.0,
    socket: str | None = None,
) -> bool:  # fmt: skip
    """Declares that the checkpoint at path is complete. When this returns, stager holds it, and
    path may be removed. With wait, in seconds, it returns whether it is in the store. samples_seen are
    those of this stager's that were used since the job began: who restores skips them, by Shard.skip.
    With all_nodes, the files of all nodes of the job are complete, not only those of this one."""
    order: dict[str, Any] = {"path": os.fspath(path), "samplesSeen": samples_seen}
    if step is not None:
        order["step"] = step
    if all_nodes:
        order["allNodes"] = True
    return call(socket, "POST", f"/v1/outputs/{quote(output)}/commit", {"wait": f"{wait:g}s"}, order)[0] == http.client.OK


def cursor(input: str, go_on: Any = None, *, socket: str | None = None) -> dict[str, Any]:
    """Returns where the input stands: JSON to keep with a checkpoint. With such a cursor, or a list of those
    of all nodes, the input continues there: every lease ends, and what came after is redelivered."""
    return cursor_call(socket, "GET" if go_on is None else "PUT", f"/v1/inputs/{quote(input)}/cursor", {}, go_on)


def resume(directory: str, *, socket: str | None = None) -> dict[str, Any] | None:
    """Makes every input continue where the checkpoint stood that "stager restore" wrote to directory, and
    returns its RESTORED.json, or None if nothing was restored, so the job begins."""
    try:
        with open(os.path.join(directory, "RESTORED.json"), encoding="utf-8") as f:
            restored: dict[str, Any] = json.load(f)
    except FileNotFoundError:
        return None
    for name, at in restored.get("cursors", {}).items():
        cursor(name, at, socket=socket)
    return restored


def status(socket: str | None = None) -> dict[str, Any]:
    """Returns what "stager status -o json" prints."""
    return call(socket, "GET", "/v1/status", {})[2]
