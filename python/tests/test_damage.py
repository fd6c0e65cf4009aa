"""Damaged shards of each format: each truncation and each flipped byte gives other samples or a FormatError, and no other error."""

import contextlib
import functools
import gzip
import importlib.util
import io
import json
import os
import shutil
import struct
import sys
import tarfile
import tempfile
import types
import unittest
from unittest import mock

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..")]

import stager
from stager._formats import _members, _plain_members, open_samples, open_webdataset
from stager._streaming import litdata_config, open_litdata, open_mds

WRITTEN = os.path.join(here, "testdata", "litdata-0.2.76")  # by its BinaryWriter, with pyarrow
# by the TFRecordWriter of TensorFlow 2.21
RECORDS = bytes.fromhex(
    "0500000000000000eab2043e666972737455ff23e5000000000000000029039807d8ea82a20700000000000000bbd79f1161207468697264f3a4bd39"
    ""
)
ROWS = [{"pixels": bytes([i]) * i, "label": i % 3, "number": i} for i in range(4)]
PYARROW = importlib.util.find_spec("pyarrow") is not None


def head(samples, columns=b""):
    at = 4 * (len(samples) + 2) + len(columns)
    return struct.pack(f"<{len(samples) + 2}I", len(samples), *(at + sum(map(len, samples[:n])) for n in range(len(samples) + 1))) + columns


class Damage(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.dir = where.name

    def read(self, opener, path):
        with contextlib.closing(opener(path)) as of:
            return [of.load(i) for i in range(of.count)]

    def survives(self, opener, name, whole):
        """Reads what is left of whole after each damage, and returns how often it was refused."""
        path, refused = os.path.join(self.dir, name), 0

        def reads(content):
            with open(path, "wb") as file:
                file.write(content)
            try:
                self.read(opener, path)
            except stager.FormatError as err:
                self.assertIn(path, str(err))
                self.assertNotIn("\n", str(err).strip())
                return True
            return False

        self.assertFalse(reads(whole))
        for at in range(len(whole)):
            with self.subTest(name, truncated=at):
                refused += reads(whole[:at])
            with self.subTest(name, flipped=at):
                refused += reads(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        return refused

    def test_tar(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for name in ("1.txt", "é" * 60 + ".txt"):
                entry = tarfile.TarInfo(name)
                entry.size = 3
                archive.addfile(entry, io.BytesIO(b"abc"))
        self.assertGreater(self.survives(open_webdataset, "a.tar", buffer.getvalue()[: 512 * 6]), 2000)

    def test_plain_tar_archive_has_the_members_that_tarfile_finds(self):
        file = open(os.path.join(self.dir, "a.tar"), "w+b", buffering=0)  # noqa: SIM115 - closed after the test
        self.addCleanup(file.close)

        def members(content):
            """What each of the two readers returns."""
            file.seek(0)
            file.truncate()
            file.write(content)
            file.seek(0)
            plain = _plain_members(file.fileno())
            try:
                return plain, _members(file)
            except (tarfile.TarError, ValueError, LookupError) as err:
                return plain, err

        def damages(whole):
            """Each is a description, whether the checksum of the header says so, and the archive."""
            for at in range(0, len(whole), 64):
                yield f"truncated at {at}", True, whole[:at]
            for at in range(512):
                for mask in (1, 0xFF):
                    content = bytearray(whole)
                    content[at] ^= mask
                    yield f"byte {at} changed by {mask}", True, bytes(content)
                    header = content[:512]
                    content[148:156] = b"%06o\0 " % (sum(header) - sum(header[148:156]) + 8 * ord(" "))
                    yield f"byte {at} changed by {mask}, with a checksum", False, bytes(content)

        kinds = {
            "a file": ("d/1.txt", b"0"), "a directory": ("d", b"5"), "an old file": ("1.txt", b"\0"), "a link": ("l", b"2"),
            "a long name": ("d/" * 60 + "1", b"0"),
        }  # fmt: skip
        for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            for kind, (name, flag) in kinds.items():
                buffer = io.BytesIO()
                with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
                    for entry, entry.type in ((tarfile.TarInfo(name), flag), (tarfile.TarInfo("2.txt"), b"0")):
                        entry.size = 3 if entry.isfile() else 0
                        entry.linkname = "x" if entry.issym() else ""
                        archive.addfile(entry, io.BytesIO(b"abc"))
                whole = buffer.getvalue()[: 512 * 8]
                plain, want = members(whole)
                with self.subTest(kind, form=form):
                    self.assertEqual(len(want), 1 if kind in ("a directory", "a link") else 2)
                    self.assertEqual(plain, want if kind in ("a file", "a directory") else None)
                for damage, seen, content in damages(whole):
                    plain, want = members(content)
                    if plain is not None and plain != want and (seen or isinstance(want, list)):
                        self.fail(f"{kind} of format {form}, {damage}: got {plain}, want {want}")

    def test_header_in_the_middle_of_a_tar_archive_is_not_its_end(self):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for name in ("1.txt", "2.txt"):
                archive.addfile(tarfile.TarInfo(name))
        whole = bytearray(buffer.getvalue())
        whole[512] ^= 1
        path = os.path.join(self.dir, "a.tar")
        with open(path, "wb") as file:
            file.write(whole)
        with self.assertRaisesRegex(stager.FormatError, "the header at byte 512 is not that of a file"):
            open_samples(path)

    def test_json_lines(self):
        whole = b"".join(json.dumps({"a": n, "b": "ä"}).encode() + b"\n" for n in range(3))
        self.assertGreater(self.survives(open_samples, "a.jsonl", whole), 40)

    def test_records(self):
        self.assertGreater(self.survives(open_samples, "a.tfrecord", RECORDS), 60)
        path = os.path.join(self.dir, "train.tfrecord-00003-of-00010")
        with open(path, "wb") as file:
            file.write(RECORDS)
        self.assertEqual(self.read(open_samples, path), [b"first", b"", b"a third"])
        with open(path, "wb") as file:
            file.write(gzip.compress(RECORDS))
        with self.assertRaisesRegex(stager.FormatError, "compressed, or not a TFRecord file: there is no record at byte 0"):
            open_samples(path)

    def test_mds(self):
        names = ("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.mds")
        decode = {"str": lambda b: b.decode(), "int": lambda b: struct.unpack("<q", b)[0]}
        encodings = types.SimpleNamespace(is_mds_encoding_safe=lambda e: e in decode, mds_decode=lambda e, b: decode[e](b))
        columns = json.dumps({"column_names": ["id", "text"], "column_encodings": ["int", "str"], "column_sizes": [8, 0]}).encode()
        samples = [struct.pack("<Iq", len(text), n) + text.encode() for n, text in enumerate(("a", "", "ccc"))]
        modules = {**{name: types.ModuleType(name) for name in names}, "streaming.base.format.mds.encodings": encodings}
        with mock.patch.dict(sys.modules, modules):
            self.assertGreater(self.survives(open_mds, "a.mds", head(samples, columns) + b"".join(samples)), 100)

    def test_items_of_litdata(self):
        self.stand_in_for_litdata()
        samples = [struct.pack("<IIq", 8, len(text), n) + text.encode() for n, text in enumerate(("a", "", "ccc"))]
        of = functools.partial(open_litdata, config={"data_spec": "*", "data_format": []})
        self.assertGreater(self.survives(of, "a.bin", head(samples) + b"".join(samples)), 60)
        path = os.path.join(self.dir, "b.bin")
        with open(path, "wb") as file:
            file.write(head([b"", b""]))
        with self.assertRaisesRegex(stager.FormatError, "b.bin is damaged"):
            self.read(of, path)

    def stand_in_for_litdata(self):
        def deserialize(raw):
            a, b = struct.unpack_from("<II", raw)
            return struct.unpack("<q", raw[8 : 8 + a]), raw[8 + a : 8 + a + b].decode()

        loader = types.SimpleNamespace(PyTreeLoader=lambda: types.SimpleNamespace(setup=lambda *_: None, deserialize=deserialize))
        modules = {name: types.ModuleType(name) for name in ("litdata", "litdata.streaming", "litdata.utilities")}
        modules["litdata.streaming.item_loader"] = loader
        modules["litdata.streaming.serializers"] = types.SimpleNamespace(_get_serializers=lambda _: {})
        modules["litdata.utilities._pytree"] = types.SimpleNamespace(treespec_loads=str)
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)

    def test_index_of_litdata(self):
        with open(os.path.join(WRITTEN, "index.json"), "rb") as file:
            whole = file.read()
        path = os.path.join(self.dir, "index.json")
        for at in range(len(whole)):
            for content in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x80]) + whole[at + 1 :], whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]):
                with open(path, "wb") as file:
                    file.write(content)
                with contextlib.suppress(stager.FormatError):
                    litdata_config(path)

    def rows(self):
        return functools.partial(open_litdata, config=litdata_config(os.path.join(WRITTEN, "index.json")))

    def test_rows_of_litdata_with_a_stand_in_for_pyarrow(self):
        shutil.copy(os.path.join(WRITTEN, "chunk-0-0.bin"), self.dir)
        path = os.path.join(self.dir, "chunk-0-0.bin")

        class Batch:
            num_rows = 3

            def __init__(self, rows):
                self.rows, self.validated = rows, False

            def validate(self, full):
                self.validated = full

            def slice(self, at, length):
                assert self.validated
                return types.SimpleNamespace(to_pylist=lambda: self.rows[at : at + length])

        def memory_map(name):
            file = open(name, "rb")  # noqa: SIM115 - closed with the samples
            return types.SimpleNamespace(seek=file.seek, read_buffer=file.read, close=file.close)

        def open_file(buffer):
            assert buffer.startswith(b"ARROW1") and buffer.endswith(b"ARROW1")
            return types.SimpleNamespace(get_batch=lambda n: Batch(ROWS[3 * n : 3 * n + 3]))

        library = types.SimpleNamespace(memory_map=memory_map, ipc=types.SimpleNamespace(open_file=open_file))
        with mock.patch.dict(sys.modules, {"pyarrow": library, "pyarrow.ipc": library.ipc}):
            self.assertEqual(self.read(self.rows(), path), ROWS)
        with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.ipc": None}), self.assertRaisesRegex(stager.FormatError, "needs the package pyarrow"):
            self.rows()(path)

    def test_rows_of_litdata(self):
        self.stand_in_for_litdata()
        path = os.path.join(WRITTEN, "chunk-0-0.bin")
        if not PYARROW:
            with self.assertRaisesRegex(stager.FormatError, "needs the package pyarrow"):
                self.rows()(path)
            return
        self.assertEqual(self.read(self.rows(), path), ROWS)
        with open(path, "rb") as file:
            self.assertGreater(self.survives(self.rows(), "a.bin", file.read()), 400)

    def test_parquet(self):
        path = os.path.join(self.dir, "a.parquet")
        if not PYARROW:
            with self.assertRaisesRegex(stager.FormatError, "needs the package pyarrow"):
                open_samples(path)
            return
        import pyarrow
        import pyarrow.parquet

        buffer, rows = io.BytesIO(), [{"n": n, "text": "abc"[:n]} for n in range(4)]
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows), buffer, row_group_size=3, write_page_checksum=True, write_statistics=False, store_schema=False
        )
        whole = buffer.getvalue()
        footer = len(whole) - 8 - struct.unpack("<I", whole[-8:-4])[0]

        def reads(content):
            with open(path, "wb") as file:
                file.write(content)
            with contextlib.suppress(stager.FormatError):
                return self.read(open_samples, path)

        self.assertEqual(reads(whole), rows)
        for at in range(len(whole)):
            with self.subTest(truncated=at):
                self.assertIsNone(reads(whole[:at]))
            for mask in (1, 0xFF):
                with self.subTest(flipped=at, mask=mask):
                    got = reads(whole[:at] + bytes([whole[at] ^ mask]) + whole[at + 1 :])
                    if got is not None and at >= footer:  # which has no checksum: a column may get another type
                        self.assertEqual(len(got), len(rows))
                    elif got is not None:
                        self.assertEqual(got, rows)


if __name__ == "__main__":
    unittest.main()
