"""python -m stager ARGUMENTS... is the stager binary."""

from __future__ import annotations

import os
import sys

from ._binary import find


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
