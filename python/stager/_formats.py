"""Samples of a shard by their index: tar archives, TFRecord, JSON lines, Parquet, directories and other files."""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import struct
import tarfile
from typing import Any, BinaryIO, Callable

from ._errors import FormatError, StagerError


class Samples:
    """The samples of one shard. load(i) returns sample i."""

    def __init__(self, count: int, load: Callable[[int], Any], close: Callable[[], None] = lambda: None) -> None:
        self.count, self.load, self.close = count, load, close


def checked(open: Callable[..., Samples]) -> Callable[..., Samples]:
    """Returns open with a FormatError for whatever a parser raises at bytes that it does not expect. Errors of the system keep their class."""

    @functools.wraps(open)
    def opened(path: str, *args: Any, **options: Any) -> Samples:
        of = _checked(path, open, path, *args, **options)
        return Samples(of.count, functools.partial(_checked, path, of.load), of.close)

    return opened


def _checked(path: str, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return call(*args, **options)
    except (StagerError, ImportError):
        raise
    except Exception as err:
        if isinstance(err, OSError) and err.errno is not None:
            raise
        raise FormatError(f"{path} is damaged: {type(err).__name__}: {err}") from err


@checked
def open_samples(path: str) -> Samples:
    """Opens a shard by the end of its name. A sample of a tar archive or a directory is what has one name before its first
    dot, as WebDataset has it: {"__key__": "dogs/0007", "jpg": b"…", "cls": b"3"}. One of JSON lines or Parquet is a row, one
    of a TFRecord file the bytes of a record. Any other file is one sample."""
    name = os.path.basename(path).lower()
    if os.path.isdir(path):
        return _directory(path)
    if name.endswith(".tar"):
        return _tar(path)
    if name.endswith((".jsonl", ".ndjson")):
        return _lines(path)
    if name.endswith(".parquet"):
        return _parquet(path)
    if re.search(r"\.tfrecords?(-\d+-of-\d+)?$", name):
        return _records(path)
    if name.endswith((".gz", ".tgz", ".zst", ".bz2", ".xz", ".zip", ".lz4")):
        raise FormatError(f"{path}: samples of a compressed file cannot be found by their index; store it uncompressed, or use ShardDataset")
    os.stat(path)  # a file that is missing is reported here
    return Samples(1, lambda _: {"__key__": _split(os.path.basename(path))[0], _split(os.path.basename(path))[1]: _read(path)})


def _split(name: str) -> tuple[str, str]:
    directory, base = os.path.split(name)
    key, _, kind = base.partition(".")
    return os.path.join(directory, key), kind


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _tar(path: str, split: Callable[[str], tuple[str, str]] = _split, **more: Any) -> Samples:
    """The samples of a tar archive. A file whose key is "" belongs to none; more is added to each sample."""
    file = open(path, "rb")  # noqa: SIM115 - closed with the samples
    try:
        found = _plain_members(file.fileno())
        members = [(*split(name), offset, size) for name, offset, size in (_members(file) if found is None else found)]
    except (tarfile.TarError, ValueError, LookupError) as err:
        file.close()
        raise FormatError(f"{path} is not a tar archive, or is damaged: {err}") from err
    groups = [(key, list(of)) for key, of in itertools.groupby((m for m in members if m[0]), lambda m: m[0])]

    def load(i: int) -> dict[str, Any]:
        key, of = groups[i]
        sample: dict[str, Any] = {"__key__": key, **more}
        for _, kind, offset, size in of:
            file.seek(offset)
            sample[kind] = file.read(size)
        return sample

    return Samples(len(groups), load, file.close)


def _members(file: BinaryIO) -> list[tuple[str, int, int]]:
    """The names, offsets and sizes of the files of a tar archive."""
    with tarfile.open(fileobj=file, mode="r:") as archive:
        members = [(m.name, m.offset_data, m.size) for m in archive if m.isfile()]
        file.seek(archive.offset)  # tarfile ends at a damaged header as at the end of the archive
        if file.read(tarfile.BLOCKSIZE).strip(b"\0"):
            raise tarfile.ReadError(f"the header at byte {archive.offset} is not that of a file")
    return members


def _plain_members(descriptor: int) -> list[tuple[str, int, int]] | None:
    """What _members returns, in a third of its time: each worker reads the headers of each shard. None if there is anything but files
    and directories with short names, or an error, which is for _members. https://www.gnu.org/software/tar/manual/html_node/Standard.html"""
    members, at, end = [], 0, os.fstat(descriptor).st_size
    while at < end:
        header = os.pread(descriptor, tarfile.BLOCKSIZE, at)
        if header == _END:
            break
        if len(header) < tarfile.BLOCKSIZE or header[345]:  # which begins a long name
            return None
        try:
            size, checksum = (int(header[first:last].partition(b"\0")[0], 8) for first, last in ((124, 136), (148, 156)))
        except ValueError:
            return None
        kind, at = header[156:157], at + tarfile.BLOCKSIZE
        if size < 0 or checksum != sum(header) - sum(header[148:156]) + 8 * ord(" ") or kind not in (tarfile.REGTYPE, tarfile.DIRTYPE):
            return None
        if kind == tarfile.REGTYPE:
            members.append((os.fsdecode(header[:100].partition(b"\0")[0]), at, size))
            at += -(-size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    return members if members and at <= end else None


_END = bytes(tarfile.BLOCKSIZE)


@checked
def open_webdataset(path: str) -> Samples:
    """Opens a tar archive with the names and keys that WebDataset gives its samples: endings in lower case, __url__, and no files
    without an ending or below a name such as __meta__."""
    if os.path.isdir(path) or not path.lower().endswith(".tar"):
        return open_samples(path)
    return _tar(path, _split_webdataset, __url__=path)


def _split_webdataset(name: str) -> tuple[str, str]:
    found = None if re.match("__[^/]*__($|/)", name) else re.match("((?:.*/|)[^.]+)[.]([^/]*)$", name)
    return ("", "") if found is None else (found[1], found[2].lower())


def _directory(path: str) -> Samples:
    names = sorted(os.path.relpath(os.path.join(at, name), path) for at, _, of in os.walk(path) for name in of)
    groups = [(key, list(of)) for key, of in itertools.groupby(names, lambda name: _split(name)[0])]

    def load(i: int) -> dict[str, Any]:
        key, of = groups[i]
        return {"__key__": key, **{_split(name)[1]: _read(os.path.join(path, name)) for name in of}}

    return Samples(len(groups), load)


def _lines(path: str) -> Samples:
    file = open(path, "rb")  # noqa: SIM115 - closed with the samples
    offsets, at = [], 0
    for line in file:
        if line.strip():
            offsets.append(at)
        at += len(line)

    def load(i: int) -> Any:
        file.seek(offsets[i])
        try:
            return json.loads(file.readline())
        except ValueError as err:
            raise FormatError(f"{path}: sample {i} is not JSON: {err}") from err

    return Samples(len(offsets), load, file.close)


def _records(path: str) -> Samples:
    """The records of a TFRecord file: length (8 bytes, little-endian), its checksum (4), data, its checksum (4). The checksums
    of lengths prove the index; the data are those that stager has compared with the store's checksum.
    https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details"""
    file = open(path, "rb")  # noqa: SIM115 - closed with the samples
    try:
        records, at, size = [], 0, os.fstat(file.fileno()).st_size
        while at < size:
            file.seek(at)
            head = file.read(12)
            if len(head) < 12 or struct.unpack("<I", head[8:])[0] != _masked(head[:8]):
                raise FormatError(f"{path} is damaged, or compressed, or not a TFRecord file: there is no record at byte {at}")
            length = struct.unpack("<Q", head[:8])[0]
            records.append((at + 12, length))
            at += length + 16
        if at != size:
            raise FormatError(f"{path} is damaged: the record at byte {records[-1][0] - 12} ends behind the file")
    except BaseException:
        file.close()
        raise

    def load(i: int) -> bytes:
        offset, length = records[i]
        file.seek(offset)
        return file.read(length)

    return Samples(len(records), load, file.close)


def _masked(data: bytes) -> int:
    """The masked CRC-32C of a few bytes, as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CASTAGNOLI[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _castagnoli(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CASTAGNOLI = [_castagnoli(byte) for byte in range(256)]


def _parquet(path: str) -> Samples:
    try:
        import pyarrow.parquet  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError as err:
        raise FormatError(f"{path}: reading Parquet needs the package pyarrow") from err
    try:
        file = pyarrow.parquet.ParquetFile(path, page_checksum_verification=True)
    except TypeError:  # before pyarrow 15
        file = pyarrow.parquet.ParquetFile(path)
    metadata = file.metadata
    ends = list(itertools.accumulate(metadata.row_group(i).num_rows for i in range(file.num_row_groups)))
    count = ends[-1] if ends else 0
    if count != metadata.num_rows:
        file.close()
        raise FormatError(f"{path} is damaged: its row groups have {count} rows, and the file {metadata.num_rows}")
    last: list[Any] = [-1, None]  # the row group that was read last

    def load(i: int) -> Any:
        number = next(g for g, end in enumerate(ends) if i < end)
        if last[0] != number:
            table, group = file.read_row_group(number), metadata.row_group(number)
            columns = ((group.column(c).path_in_schema, file.schema.column(c).path) for c in range(group.num_columns))
            if table.num_rows != group.num_rows or any(own != schema for own, schema in columns):
                raise FormatError(f"{path} is damaged: row group {number} does not have the rows and columns that the file says")
            last[:] = number, table
        return last[1].slice(i - (ends[number] - last[1].num_rows), 1).to_pylist()[0]

    return Samples(count, load, file.close)
