"""Data of a store as local files, without a daemon."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import urllib.parse
from collections.abc import Iterable

from ._binary import find
from ._errors import NoSpaceError, NotFoundError, StagerError, WaitTimeoutError

NO_SPACE = 73  # exit code of the binary


def run(what: str, arguments: list[str], timeout: float) -> None:
    """Runs the binary to its end. An error has the last line that it printed, and its exit code."""
    binary = find()
    if binary is None:
        raise NotFoundError("the stager binary is not on PATH; install it, or set STAGER_BINARY")
    try:
        done = subprocess.run([binary, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as err:
        raise WaitTimeoutError(f"cannot {what} within {timeout:g} s; run it again, it resumes") from err
    except OSError as err:
        raise NotFoundError(f"cannot run {binary}: {err.strerror}; set STAGER_BINARY to the stager binary") from err
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no reason was given"])[-1].removeprefix("stager: ")
        failure = (NoSpaceError if done.returncode == NO_SPACE else StagerError)(f"cannot {what}: {last}")
        failure.code = done.returncode
        raise failure


def staged(source: str, path: str | None = None, *, include: Iterable[str] = (), exclude: Iterable[str] = (), timeout: float = 86400.0) -> str:
    """Copies a dataset or an object of a store to local files, verified, and returns their path: that of the directory, or of the one file.

    A second call only lists the source, and fetches what has changed; one that was interrupted resumes. Nothing is fetched if it would not
    fit. It runs the binary, with the credentials of this process, and needs no daemon: it is for notebooks and scripts.

    path     The local directory; by default one of the user's cache for each source and choice.
    include  Only objects that match one of these patterns, such as *.parquet; exclude leaves out those that match.

    >>> frame = pandas.read_parquet(staged("s3://datasets/flights/2024.parquet"))  # doctest: +SKIP
    >>> model = AutoModel.from_pretrained(staged("hf://org/model@main/"))  # doctest: +SKIP
    """
    options = [f"--{name}={pattern}" for name, of in (("include", include), ("exclude", exclude)) for pattern in ([of] if isinstance(of, str) else of)]
    name = os.path.basename(urllib.parse.unquote(urllib.parse.urlsplit(source).path).rstrip("/"))
    if path is None:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        key = hashlib.sha256("\0".join([source, *options]).encode()).hexdigest()[:12]
        path = os.path.join(cache, "stager", "staged", f"{re.sub('[^A-Za-z0-9._-]', '_', name)[:64] or 'root'}-{key}")
    path = os.path.abspath(path)
    run(f"copy {source.split('?')[0]} to {path}", ["prefetch", "--quiet", *options, "--", source, path], timeout)
    one = os.path.join(path, name)
    return one if name and not source.split("?")[0].endswith("/") and os.path.isfile(one) else path
