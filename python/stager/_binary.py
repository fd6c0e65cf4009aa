"""Where the stager binary is."""

from __future__ import annotations

import os
import shutil


def find() -> str | None:
    """Returns the binary: $STAGER_BINARY, the one in this package, or the one on PATH."""
    named = os.environ.get("STAGER_BINARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "stager")
    return beside if os.access(beside, os.X_OK) else shutil.which("stager")
