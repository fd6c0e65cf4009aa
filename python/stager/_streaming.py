"""Samples of the shards of MosaicML Streaming (MDS) and LitData, by their index."""

from __future__ import annotations

import functools
import json
import os
import struct
from typing import Any, Callable

from ._errors import FormatError
from ._formats import Samples, checked


@checked
def open_mds(path: str, unsafe: bool = False) -> Samples:
    """Opens a shard of MosaicML Streaming. Its columns are in the shard itself, so the data set's index.json is not needed, and has no samples."""
    if os.path.basename(path).endswith("index.json"):
        return Samples(0, _none)
    from streaming.base.format.mds.encodings import is_mds_encoding_safe, mds_decode  # type: ignore[import-not-found, unused-ignore]

    def columns(text: bytes) -> Callable[[bytes], Any]:
        of = json.loads(text)
        names, encodings, sizes = of["column_names"], of["column_encodings"], of["column_sizes"]
        for name, encoding in zip(names, encodings):
            if not unsafe and not is_mds_encoding_safe(encoding):
                raise FormatError(f"{path}: column {name} is {encoding}, and loading it can run code; set allow_unsafe_types=True if you trust the data")

        def decode(raw: bytes) -> Any:
            at, long = 0, []
            for size in sizes:
                if not size:  # it is in the sample
                    (size,) = struct.unpack_from("<I", raw, at)
                    at += 4
                long.append(size)
            sample = {}
            for name, encoding, size in zip(names, encodings, long):
                sample[name] = mds_decode(encoding, raw[at : at + size])
                at += size
            return sample

        return decode

    return _open(path, ".mds", columns)


@checked
def open_litdata(path: str, config: dict[str, Any]) -> Samples:
    """Opens a chunk of LitData, whose items are as the config of the data set's index.json says."""
    if os.path.basename(path).endswith("index.json"):
        return Samples(0, _none)
    of = _rows(path)
    return of if of is not None else _open(path, ".bin", lambda _: _litdata(json.dumps(config, sort_keys=True)).deserialize)


def _rows(path: str) -> Samples | None:
    """Returns the samples of a chunk whose items are rows of an Arrow file at its end: LitData writes dictionaries of numbers, strings and bytes
    so, with a head whose offsets leave no bytes to them. Returns None for other chunks."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        count, first = struct.unpack("<II", file.read(8))
        file.seek(4 * (count + 1))
        (last,) = struct.unpack("<I", file.read(4))
        file.seek(max(0, size - 12))
        length, magic = struct.unpack("<I8s", file.read(12))
    if count == 0 or first != last or magic != b"LDARW01\0":
        return None
    start = size - 12 - length
    if start != first:
        raise FormatError(f"{path} is damaged: its rows begin at byte {start}, want {first}")
    try:
        import pyarrow.ipc  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as err:
        raise FormatError(f"{path}: reading rows in a chunk of LitData needs the package pyarrow") from err
    source = pyarrow.memory_map(path)
    source.seek(start)
    reader = pyarrow.ipc.open_file(source.read_buffer(length))
    step = reader.get_batch(0).num_rows  # each but the last has as many
    read: list[Any] = [-1, None]  # the batch that was read last

    def load(i: int) -> Any:
        if read[0] != i // step:
            batch = reader.get_batch(i // step)
            batch.validate(full=True)
            read[:] = i // step, batch
        return read[1].slice(i % step, 1).to_pylist()[0]

    return Samples(count, load, source.close)


def litdata_config(index: str, unsafe: bool = False) -> dict[str, Any]:
    """Returns the config of an index.json, after a check that open_litdata can read what it describes."""
    try:
        with open(index, encoding="utf-8") as file:
            config: dict[str, Any] = json.load(file)["config"]
        other = {name: config.get(name) for name in ("compression", "encryption") if config.get(name)}
        loader, spec, formats = config.get("item_loader") or "PyTreeLoader", config["data_spec"], config["data_format"]
    except (ValueError, KeyError, TypeError, AttributeError) as err:
        raise FormatError(f"{index} is not an index of LitData: {err}") from err
    if other or loader != "PyTreeLoader" or not spec:
        raise FormatError(f"{index}: only chunks of the PyTreeLoader without compression and encryption have samples that are found by their index")
    if not unsafe and "pickle" in formats:
        raise FormatError(f"{index}: a part of each sample is pickled, and loading it can run code; set allow_unsafe_types=True if you trust the data")
    return config


@functools.lru_cache(maxsize=8)
def _litdata(config: str) -> Any:
    from litdata.streaming.item_loader import PyTreeLoader  # type: ignore[import-not-found, unused-ignore]
    from litdata.streaming.serializers import _get_serializers  # type: ignore[import-not-found, unused-ignore]
    from litdata.utilities._pytree import treespec_loads  # type: ignore[import-not-found, unused-ignore]

    of, loader = json.loads(config), PyTreeLoader()
    loader.setup({**of, "data_spec": treespec_loads(of["data_spec"])}, [], _get_serializers(None))
    return loader


def _none(_: int) -> Any:
    raise IndexError


def _open(path: str, end: str, decoder: Callable[[bytes], Callable[[bytes], Any]]) -> Samples:
    """Opens a shard that begins with the number of its samples and their offsets, and what lies before the first of them."""
    if not path.endswith(end):
        raise FormatError(f"{path}: want a file that ends in {end}, without compression")
    file = open(path, "rb")  # noqa: SIM115 - closed with the samples
    try:
        size = os.fstat(file.fileno()).st_size
        (count,) = struct.unpack("<I", file.read(4))
        offsets = struct.unpack(f"<{count + 1}I", file.read(4 * (count + 1))) if 4 * (count + 2) <= size else ()
        if not offsets or offsets[0] < file.tell() or offsets[-1] > size or any(a > b for a, b in zip(offsets, offsets[1:])):
            raise ValueError("its offsets are not those of a shard")
        decode = decoder(file.read(offsets[0] - file.tell()))
    except (struct.error, ValueError, KeyError, TypeError) as err:
        file.close()
        if isinstance(err, FormatError):
            raise
        raise FormatError(f"{path} is damaged: {err}") from err

    def load(i: int) -> Any:
        file.seek(offsets[i])
        return decode(file.read(offsets[i + 1] - offsets[i]))

    return Samples(count, load, file.close)
