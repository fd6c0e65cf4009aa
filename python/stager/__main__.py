"""python -m stager ARGUMENTS... is the stager binary."""

from __future__ import annotations

import os
import shutil
import sys


def find() -> str | None:
    """Returns the binary: $STAGER_BINARY, the one in this package, or the one on PATH."""
    named = os.environ.get("STAGER_BINARY")
    if named:
        return named
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "stager")
    return beside if os.access(beside, os.X_OK) else shutil.which("stager")


def main(arguments: list[str]) -> int:
    binary = find()
    if binary is None:
        print("stager: the binary is not on PATH; install it, or set STAGER_BINARY", file=sys.stderr)
        return 69
    try:
        os.execv(binary, [binary, *arguments])
    except OSError as err:
        print(f"stager: cannot run {binary}: {err.strerror}", file=sys.stderr)
        return 69


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
