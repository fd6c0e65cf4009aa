"""Where the stager binary is."""

from __future__ import annotations

import os
import shutil
import sysconfig


def find() -> str | None:
    """Returns the binary: $STAGER_BINARY, the one that the wheel installed, or the one on PATH."""
    named = os.environ.get("STAGER_BINARY")
    if named:
        return named
    installed = os.path.join(sysconfig.get_path("scripts"), "stager")
    return installed if os.access(installed, os.X_OK) else shutil.which("stager")
