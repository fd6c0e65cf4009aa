"""Warnings of copies that the library datasets makes of shards, outside of their window."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._daemon import log


def warn_of_builder(input: str) -> None:
    """Warns if who asks for shards is a builder of datasets: load_dataset without streaming and Dataset.from_generator read all
    that there is, once, and write it to the cache of the library."""
    if "datasets.builder" not in sys.modules:
        return
    frame: Any = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "datasets.builder":
            log.warning(
                "the library datasets copies all of input %s into its Arrow cache, outside of the window, and the epoch is over before training begins;"
                " use stager.hf.dataset, or IterableDataset.from_generator",
                input,
            )
            return
        frame = frame.f_back


def warn_of_cache(input: str, of: Any) -> None:
    """Warns if the Dataset that was made of a shard has its rows in a cache: each shard is copied there and stays."""
    files = [os.path.dirname(file.get("filename", "")) for file in getattr(of, "cache_files", None) or []]
    if files:
        log.warning(
            "read of input %s returned a Dataset whose rows are in %s: each shard is copied there, outside of the window, and stays;"
            " return what load_dataset returns with streaming=True",
            input,
            files[0],
        )
