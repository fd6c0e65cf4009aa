"""Tests of the package against a fake daemon: python3 -m unittest discover -s python/tests."""

import contextlib
import errno
import io
import json
import os
import pickle
import struct
import sys
import tarfile
import tempfile
import types
import unittest
from unittest import mock

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), os.path.dirname(os.path.abspath(__file__))]

from daemon import Fake, lines

import stager
import stager.hf
from stager import _daemon
from stager._feed import Item, spans, union
from stager._formats import open_samples, open_webdataset
from stager._order import Order, Whole
from stager._streaming import litdata_config, open_litdata, open_mds


class Case(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.dir = where.name

    def fake(self, *counts, **options):
        shards = [lines(self.dir, f"{n}.jsonl", count) for n, count in enumerate(counts)]
        fake = Fake(os.path.join(self.dir, "s.sock"), shards, **options)
        self.addCleanup(fake.server_close)
        self.addCleanup(fake.shutdown)
        return fake


def batches_of_epoch(epoch, socket):
    data = stager.batches("train", 1, timeout=0, socket=socket)
    assert data.epoch == 0
    data._feed.epoch = epoch
    return data


class Shards(Case):
    def test_request_for_the_next_acknowledges(self):
        fake = self.fake(1, 1, 1)
        source = iter(stager.shards("train", socket=fake.path))
        first = next(source)
        self.assertEqual((str(first), first.position, fake.acked), (fake.shards[0], 0, []))
        next(source)
        self.assertEqual(fake.acked, [0])
        self.assertEqual([s.position for s in source], [2])
        self.assertEqual(fake.acked, [0, 1, 2])

    def test_ack_and_nack_end_a_lease_at_once(self):
        fake = self.fake(1, 1)
        with stager.shards("train", socket=fake.path) as source:
            passing = iter(source)
            next(passing).nack("torn")
            self.assertEqual(fake.returned, [0])
            next(passing).ack()
            self.assertEqual(fake.acked, [0])

    def test_epoch_that_others_do_not_end_is_awaited_for_the_timeout(self):
        fake = self.fake(1)  # its epoch is 0
        for source in (stager.shards("train", epoch=1, timeout=0, socket=fake.path), batches_of_epoch(1, fake.path)):
            with self.assertRaisesRegex(stager.WaitTimeoutError, "within 0 s: readers that hold shards of epoch 0"):
                list(source)

    def test_copies_of_the_library_datasets_are_warned_of(self):
        library = types.ModuleType("datasets.builder")
        exec("def prepare(of): return list(of)", vars(library))  # as load_dataset without streaming does
        fake = self.fake(1, 1, 1)
        with mock.patch.dict(sys.modules, {"datasets.builder": library}):
            for kind, of in (("shards", stager.shards("train", socket=fake.path)), ("batches", stager.batches("train", 1, socket=fake.path))):
                with self.subTest(kind), self.assertLogs("stager", "WARNING") as logs:
                    library.prepare(of)
                self.assertEqual(len(logs.output), 1)
                self.assertIn("copies all of input train into its Arrow cache, outside of the window", logs.output[0])
            with self.assertNoLogs("stager", "WARNING") if hasattr(self, "assertNoLogs") else contextlib.nullcontext():
                list(stager.shards("train", socket=fake.path))

    def test_context_returns_what_is_held(self):
        fake = self.fake(1, 1)
        with stager.shards("train", socket=fake.path) as source:
            held = next(iter(source))
        self.assertEqual((fake.returned, fake.acked, type(pickle.loads(pickle.dumps(held)))), ([0], [], str))

    def test_workers_of_a_loader_must_choose_a_lag(self):
        fake = self.fake(1)
        torch = types.SimpleNamespace(get_worker_info=lambda: 1)
        with mock.patch.dict(sys.modules, {"torch.utils.data": torch}):
            with self.assertRaisesRegex(stager.UsageError, "stager.torch.loader"):
                next(iter(stager.shards("train", socket=fake.path)))
            self.assertEqual(len(list(stager.shards("train", socket=fake.path, ack_lag=1))), 1)


class Errors(Case):
    def test_codes_have_classes(self):
        for code, kind in {
            400: stager.RequestError, 403: stager.AccessError, 404: stager.NotFoundError, 409: stager.ConflictError, 422: stager.RejectedError,
            500: stager.InputFailedError, 507: stager.NoSpaceError,
        }.items():  # fmt: skip
            fake = Fake(os.path.join(self.dir, f"{code}.sock"), fail=code)
            with self.subTest(code), self.assertRaises(kind) as raised:
                stager.status(socket=fake.path)
            self.assertEqual((raised.exception.code, str(raised.exception)), (code, "it is the test's will"))
            fake.shutdown()
            fake.server_close()

    def test_daemon_that_does_not_fit_is_reported(self):
        for api, words in ((None, "is older"), ("2", "version 2 of the API")):
            fake = Fake(os.path.join(self.dir, f"{api}.sock"), api=api)
            with self.subTest(api), self.assertRaisesRegex(stager.VersionError, words):
                stager.status(socket=fake.path)
            fake.shutdown()
            fake.server_close()

    def test_absent_daemon_is_unreachable(self):
        with self.assertRaisesRegex(stager.UnreachableError, 'is "stager run" running'):
            next(iter(stager.shards("train", socket=os.path.join(self.dir, "none"), patience=0)))

    def test_long_wait_is_logged(self):
        with mock.patch("time.monotonic", side_effect=[0, 0, 31, 31, 62, 62]), self.assertLogs("stager", "WARNING") as logs:
            wait = _daemon.Heartbeat("a shard")
            wait.beat("budget")
            wait.beat("disk")
        self.assertEqual([r.getMessage() for r in logs.records], ["waiting for a shard for 31 s: budget", "waiting for a shard for 62 s: disk"])


class Batches(Case):
    def test_shard_is_acknowledged_when_its_last_sample_was_used(self):
        fake = self.fake(3, 3, 0, 1)
        data = iter(stager.batches("train", 2, socket=fake.path))
        acked = []
        for _ in range(4):
            next(data)
            acked.append(sorted(fake.acked))
        self.assertEqual(acked, [[], [], [0], [0, 1]])
        with self.assertRaises(StopIteration):
            next(data)
        self.assertEqual(sorted(fake.acked), [0, 1, 2, 3])

    def test_state_resumes_at_the_next_sample(self):
        for size, shuffle in ((2, 0), (3, 4), (5, 16)):
            fake = Fake(os.path.join(self.dir, f"{size}.sock"), [lines(self.dir, f"{size}-{n}.jsonl", 7) for n in range(5)])
            data, seen, state = stager.batches("train", size, shuffle=shuffle, socket=fake.path), [], None
            for at, batch in enumerate(data):
                if at == 5:
                    break  # as if it were killed: what came after the state is used again
                if at < 4:
                    seen += [s["name"] for s in batch]
                    state = json.loads(json.dumps(data.state_dict()))
            again = stager.batches("train", size, shuffle=shuffle, socket=fake.path)
            again.load_state_dict(state)
            self.assertEqual(again.samples_seen, len(seen))
            seen += [s["name"] for batch in again for s in batch]
            with self.subTest(size=size, shuffle=shuffle):
                self.assertEqual(sorted(seen), sorted(f"{size}-{n}.jsonl:{i}" for n in range(5) for i in range(7)))
            fake.shutdown()
            fake.server_close()

    def test_pass_that_is_left_continues(self):
        fake = self.fake(3, 3, 3)
        data, seen = stager.batches("train", 2, socket=fake.path), []
        for batch in data:
            seen += [s["name"] for s in batch]
            if len(seen) == 4:
                break
        self.assertEqual(data.epoch, 0)
        seen += [s["name"] for batch in data for s in batch]
        self.assertEqual((len(seen), len(set(seen)), data.epoch), (9, 9, 1))

    def test_states_of_processes_in_two_epochs_are_merged(self):
        shards = [lines(self.dir, f"{n}.jsonl", 2) for n in range(4)]
        fake = Fake(os.path.join(self.dir, "two.sock"), shards)
        first, second = (stager.batches("train", 1, reader=name, socket=fake.path) for name in ("r0", "r1"))
        passing = iter(first)
        seen = [s["name"] for s in next(passing)]
        seen += [s["name"] for batch in second for s in batch]  # its epoch ends, since the first one holds the rest
        states = json.loads(json.dumps([first.state_dict(), second.state_dict()]))
        self.assertEqual([s["cursor"]["epoch"] for s in states], [0, 1])
        for order in (states, states[::-1]):
            again = Fake(os.path.join(self.dir, f"again{order is states}.sock"), shards)
            data = stager.batches("train", 1, socket=again.path)
            data.load_state_dict(order)
            rest = [s["name"] for batch in data for s in batch]
            self.assertEqual(sorted(seen + rest), sorted(f"{n}.jsonl:{i}" for n in range(4) for i in range(2)))
        for server in (fake, again):
            self.addCleanup(server.server_close)
            self.addCleanup(server.shutdown)

    def test_loader_begins_before_the_source_is_listed(self):
        fake = self.fake(2, 2, 2)
        fake.listing = 3  # requests
        data = stager.batches("train", 2, socket=fake.path)
        passing = iter(data)
        seen = [s["name"] for s in next(passing)]
        self.assertEqual(fake.listing, 3)  # it did not wait
        state = json.loads(json.dumps(data.state_dict()))
        self.assertEqual((state["cursor"]["manifest"], state["cursor"]["settled"]), ("first-2-abc", {"0": [[0, 0]]}))
        fake.listing = 0
        self.assertEqual(data.state_dict()["cursor"]["manifest"], "m")
        self.assertEqual(fake.cursors[-1], ("GET", {"beginning": "first-2-abc", "wait": "20s"}))
        seen += [s["name"] for batch in passing for s in batch]
        self.assertEqual(data.state_dict()["cursor"]["settled"], {"0": [[0, 2]]})
        self.assertEqual(len(fake.cursors), 3)  # once the whole list is known, nobody asks again
        self.assertEqual(sorted(seen), sorted(f"{n}.jsonl:{i}" for n in range(3) for i in range(2)))

    def test_state_of_a_source_that_changed_names_its_shards(self):
        fake = self.fake(2, 2)
        fake.listing = 1
        data = stager.batches("train", 2, socket=fake.path)
        next(iter(data))
        data._feed.base["manifest"] = "first-9-def"
        with self.assertLogs("stager", "WARNING") as logs:
            self.assertEqual(data.state_dict()["cursor"]["manifest"], "first-9-def")
        self.assertIn("cannot be restored", logs.output[0])

    def test_state_does_not_fail_because_the_daemon_is_away(self):
        fake = self.fake(2, 2)
        fake.listing = 1
        data = stager.batches("train", 2, socket=fake.path, patience=0)
        next(iter(data))
        fake.fail = 503  # it begins again
        with self.assertNoLogs("stager", "WARNING") if hasattr(self, "assertNoLogs") else contextlib.nullcontext():
            self.assertEqual(data.state_dict()["cursor"]["manifest"], "first-2-abc")
        data._feed.base["settled"] = {"0": [[0, 2]]}  # a shard that the beginning does not have
        with self.assertLogs("stager", "WARNING") as logs:
            self.assertEqual(data.state_dict()["cursor"]["manifest"], "first-2-abc")
        self.assertIn("cannot be restored", logs.output[0])

    def test_cursor_waits_for_the_list(self):
        fake = self.fake(1, 1)
        for method, at in (("GET", None), ("PUT", {"settled": {"0": [[0, 0]]}})):
            fake.listing = 3
            self.assertEqual(_daemon.cursor_call(fake.path, method, "/v1/inputs/train/cursor", {}, at, patience=0)["manifest"], "m")
            self.assertEqual(fake.listing, 0)
        fake.fail = 503  # another reason than the list
        with self.assertRaises(stager.NotReadyError):
            _daemon.cursor_call(fake.path, "GET", "/v1/inputs/train/cursor", {}, patience=0)

    def test_merged_states_have_the_longer_list(self):
        for manifests, want in ((("first-2-abc", "m"), "m"), (("first-2-abc", "first-9-abc"), "first-9-abc"), (("m", "m"), "m")):
            for order in (manifests, manifests[::-1]):
                fake = Fake(os.path.join(self.dir, "merged.sock"), [lines(self.dir, "0.jsonl", 1)])
                states = [
                    {"stager": 1, "input": "train", "samples_seen": 0, "partial": [], "cursor": {"manifest": m, "part": "0/1", "epoch": 0, "settled": {}}}
                    for m in order
                ]
                with mock.patch("stager._feed.cursor_call", return_value={"epoch": 0}) as put:
                    stager.batches("train", 1, socket=fake.path).load_state_dict(states)
                self.assertEqual([c["manifest"] for c in put.call_args.args[4]], [want])
                fake.shutdown()
                fake.server_close()
                os.unlink(fake.path)

    def test_shard_whose_acknowledgement_was_lost_is_not_used_again(self):
        fake, seen = self.fake(2, 2, 2), []
        for batch in stager.batches("train", 2, socket=fake.path):
            seen += [s["name"] for s in batch]
            if len(seen) == 2:  # the daemon forgets the lease, and delivers its shard once more
                fake.waiting.insert(0, fake.leased.pop("l0"))
        self.assertEqual((len(seen), len(set(seen)), sorted(fake.acked)), (6, 6, [0, 1, 2]))

    def test_shards_that_are_being_acknowledged_keep_their_leases_when_the_daemon_restarts(self):
        data, rebound = stager.batches("train", 2, socket=self.fake(2, 3).path), []
        feed, end = data._feed, data._feed.acker.end_lease

        def acknowledge(lease, *more):
            before = len(rebound)
            feed._rebind()
            self.assertIn(lease, rebound[before:])
            end(lease, *more)

        with mock.patch.object(feed.acker, "end_lease", acknowledge), mock.patch.object(feed.leaser, "rebind", lambda lease, _: rebound.append(lease)):
            self.assertEqual(sum(map(len, data)), 5)
        self.assertEqual((sorted(set(rebound)), feed.acks), (["l0", "l1"], {}))

    def test_state_of_another_input_is_rejected(self):
        fake = self.fake(1)
        state = stager.batches("other", 1, socket=fake.path).state_dict()
        for bad, words in ((state, "but of other"), ({}, "not a state"), ([3], "not a state")):
            with self.assertRaisesRegex(stager.RejectedError, words):
                stager.batches("train", 1, socket=fake.path).load_state_dict(bad)

    def test_samples_that_decode_leaves_out_count_as_used(self):
        fake = self.fake(4, 4)
        got = list(stager.batches("train", 1, decode=lambda s: s if s["name"].endswith(("0", "1")) else None, socket=fake.path))
        self.assertEqual((len(got), sorted(fake.acked)), (4, [0, 1]))


class Orders(Case):
    def test_blocks_go_to_workers_in_turn(self):
        paths = [lines(self.dir, f"{n}.jsonl", 5) for n in range(7)]

        def get(n):
            return Item(n, paths[n], 0, [], -1) if n < len(paths) else None

        for shuffle in (0, 9):
            order = Order(open_samples, lambda s: s["name"], shuffle, 3)
            want = [t.value for t in order.samples(get)]
            self.assertEqual((len(want), len(set(want))), (35, 35))
            for workers in (2, 3):
                streams = [[t.value for t in order.samples(get, w, workers, 4)] for w in range(workers)]
                got = []
                while any(streams):
                    for stream in streams:
                        got += stream[:4]
                        del stream[:4]
                self.assertEqual(got, want)

    def test_whole_shards_say_how_many_samples_they_have(self):
        counts = [2, 0, 3]

        def get(n):
            return Item(n, str(n), 0, [[0, 0]] if n == 2 else [], -1) if n < 3 else None

        got = [t.tags for t in Whole(lambda path: range(counts[int(path)])).samples(get)]
        self.assertEqual(got, [[(0, 0, -1)], [(0, 1, 2)], [(1, -1, 0), (2, 1, -1)], [(2, 2, 3)]])

    def test_spans(self):
        self.assertEqual(spans([5, 1, 2, 9, 3]), [[1, 3], [5, 5], [9, 9]])
        self.assertEqual(union([[0, 3], [8, 9]], [[2, 5], [7, 7]]), [[0, 5], [7, 9]])


class Formats(Case):
    def test_tar_groups_names_before_the_first_dot(self):
        path = os.path.join(self.dir, "a.tar")
        with tarfile.open(path, "w") as archive:
            for name in ("d/1.jpg", "d/1.cls", "d/2.seg.png"):
                entry = tarfile.TarInfo(name)
                entry.size = len(name)
                archive.addfile(entry, io.BytesIO(name.encode()))
        of = open_samples(path)
        want = [{"__key__": "d/1", "jpg": b"d/1.jpg", "cls": b"d/1.cls"}, {"__key__": "d/2", "seg.png": b"d/2.seg.png"}]
        self.assertEqual([of.load(i) for i in range(of.count)], want)
        of.close()

    def test_tar_as_webdataset_reads_it(self):
        path = os.path.join(self.dir, "a.tar")
        with tarfile.open(path, "w") as archive:
            for name in ("__meta__/1.x", "README", "d/1.JPG", "d/1.seg.PNG", "d/2.cls"):
                entry = tarfile.TarInfo(name)
                entry.size = len(name)
                archive.addfile(entry, io.BytesIO(name.encode()))
        of = open_webdataset(path)
        first = {"__key__": "d/1", "__url__": path, "jpg": b"d/1.JPG", "seg.png": b"d/1.seg.PNG"}
        self.assertEqual([of.load(i) for i in range(of.count)], [first, {"__key__": "d/2", "__url__": path, "cls": b"d/2.cls"}])
        of.close()

    def test_directories_and_other_files(self):
        for name in ("x/1.a", "x/1.b"):
            os.makedirs(os.path.join(self.dir, "x"), exist_ok=True)
            with open(os.path.join(self.dir, name), "w") as file:
                file.write(name)
        self.assertEqual(open_samples(os.path.join(self.dir, "x")).load(0), {"__key__": "1", "a": b"x/1.a", "b": b"x/1.b"})
        self.assertEqual(open_samples(os.path.join(self.dir, "x/1.a")).load(0), {"__key__": "1", "a": b"x/1.a"})

    def test_shards_that_cannot_be_read_are_named(self):
        for name, words in (("b.tar", "b.tar is not a tar archive"), ("b.tar.gz", "uncompressed"), ("b.jsonl", "sample 0 is not JSON")):
            path = os.path.join(self.dir, name)
            with open(path, "w") as file:
                file.write("neither" * 200)
            with self.assertRaisesRegex(stager.FormatError, words):
                of = open_samples(path)
                self.addCleanup(of.close)
                of.load(0)


class Streaming(Case):
    """With the decoders of the libraries in the names that the package imports; the trainers' tests use those themselves."""

    def shard(self, name, samples, columns=b""):
        head = 4 * (len(samples) + 2)
        offsets = [head + len(columns) + sum(map(len, samples[:n])) for n in range(len(samples) + 1)]
        path = os.path.join(self.dir, name)
        with open(path, "wb") as file:
            file.write(struct.pack(f"<{len(samples) + 2}I", len(samples), *offsets) + columns + b"".join(samples))
        return path

    def setUp(self):
        super().setUp()
        decode = {"str": lambda b: b.decode(), "int": lambda b: struct.unpack("<q", b)[0], "pkl": bytes}
        encodings = types.SimpleNamespace(is_mds_encoding_safe=lambda e: e != "pkl", mds_decode=lambda e, b: decode[e](b))
        names = ("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.mds")
        modules = {**{name: types.ModuleType(name) for name in names}, "streaming.base.format.mds.encodings": encodings}
        patch = mock.patch.dict(sys.modules, modules)
        patch.start()
        self.addCleanup(patch.stop)

    def mds(self, name="shard.00000.mds", encoding="str"):
        columns = json.dumps({"column_names": ["id", "text"], "column_encodings": ["int", encoding], "column_sizes": [8, 0]}).encode()
        texts = ["a", "", "ccc"]
        return self.shard(name, [struct.pack("<I", len(t)) + struct.pack("<q", n) + t.encode() for n, t in enumerate(texts)], columns)

    def test_samples_of_mds(self):
        of = open_mds(self.mds())
        self.assertEqual([of.load(i) for i in range(of.count)], [{"id": 0, "text": "a"}, {"id": 1, "text": ""}, {"id": 2, "text": "ccc"}])
        self.assertEqual(open_mds("/x/index.json").count, 0)
        of.close()
        of = open_mds(self.mds("p.mds", "pkl"), unsafe=True)
        self.assertEqual(of.load(2), {"id": 2, "text": b"ccc"})
        of.close()

    def test_shards_that_cannot_be_read_are_refused(self):
        whole = self.mds()
        with open(whole, "rb") as file:
            body = file.read()
        back, text = struct.pack("<3I", 1, 12, 4), struct.pack("<3I", 1, 12, 12)
        for name, content in {"short.mds": body[:-1], "empty.mds": b"", "many.mds": b"\xff" * 8, "back.mds": back, "text.mds": text}.items():
            with open(os.path.join(self.dir, name), "wb") as file:
                file.write(content)
            with self.subTest(name), self.assertRaisesRegex(stager.FormatError, f"{name} is damaged"):
                open_mds(os.path.join(self.dir, name))
        with self.assertRaisesRegex(stager.FormatError, "column text is pkl.*allow_unsafe_types"):
            open_mds(self.mds("p.mds", "pkl"))
        with self.assertRaisesRegex(stager.FormatError, "without compression"):
            open_mds(whole + ".zstd")

    def test_items_of_litdata(self):
        loader = types.SimpleNamespace(PyTreeLoader=lambda: types.SimpleNamespace(setup=lambda *_: None, deserialize=bytes.upper))
        modules = {name: types.ModuleType(name) for name in ("litdata", "litdata.streaming", "litdata.utilities")}
        modules["litdata.streaming.item_loader"] = loader
        modules["litdata.streaming.serializers"] = types.SimpleNamespace(_get_serializers=lambda _: {})
        modules["litdata.utilities._pytree"] = types.SimpleNamespace(treespec_loads=str)
        config = {"data_format": ["str"], "data_spec": "*", "compression": None, "item_loader": "PyTreeLoader"}
        with mock.patch.dict(sys.modules, modules):
            of = open_litdata(self.shard("chunk-0-0.bin", [b"ab", b"", b"c"]), litdata_config(self.index(config)))
        self.assertEqual([of.load(i) for i in range(of.count)], [b"AB", b"", b"C"])
        self.assertEqual(open_litdata("/x/index.json", config).count, 0)
        of.close()
        for wrong, words in (
            ({"compression": "zstd"}, "without compression"),
            ({"item_loader": "TokensLoader"}, "only chunks of"),
            ({"data_format": ["pickle"]}, "allow_unsafe_types"),
        ):
            with self.subTest(words), self.assertRaisesRegex(stager.FormatError, words):
                litdata_config(self.index({**config, **wrong}))
        with self.assertRaisesRegex(stager.FormatError, "not an index of LitData"):
            litdata_config(self.index(None))

    def index(self, config):
        path = os.path.join(self.dir, "index.json")
        with open(path, "w") as file:
            json.dump({"chunks": [], "config": config}, file)
        return path


class DistributedCheckpoints(Case):
    def test_finish_commits_for_all_nodes(self):
        class Base:
            def __init__(self, path, thread_count=1):
                self.path, self.threads, self.calls = path, thread_count, []

            def finish(self, metadata, results):
                self.calls.append((metadata, results))

            def write_data(self, plan, planner):
                raise OSError(errno.ENOSPC, "full")

        with mock.patch.dict(sys.modules, {name: mock.Mock(FileSystemWriter=Base) for name in ("torch", "torch.distributed", "torch.distributed.checkpoint")}):
            from stager.dcp import Writer
        writer = Writer(self.dir, samples_seen=7, thread_count=4)
        writer._stager = mock.Mock()
        writer.finish("metadata", [])
        writer._stager.commit.assert_called_once_with(self.dir, step=None, samples_seen=7, all_nodes=True)
        self.assertEqual((writer.threads, writer.calls), (4, [("metadata", [])]))
        with self.assertRaisesRegex(stager.NoSpaceError, "what was written is not committed; remove it"):
            writer.write_data(None, None)
        writer.use_collectives = False
        with self.assertRaisesRegex(stager.UsageError, "after a barrier"):
            writer.finish("metadata", [])
        self.assertEqual(len(writer.calls), 1)


class Lightning(Case):
    """A trainer that requests a batch before it has used the one before."""

    def setUp(self):
        super().setUp()
        io = type("IO", (), {"save_checkpoint": lambda self, checkpoint, path, options: self.saved.append(path), "saved": []})
        names = ("lightning", "lightning.pytorch", "lightning.pytorch.plugins", "lightning.pytorch.plugins.io")
        with mock.patch.dict(sys.modules, {name: mock.Mock(Callback=object, TorchCheckpointIO=io) for name in names}):
            sys.modules.pop("stager.lightning", None)
            import stager.lightning
        self.lightning = stager.lightning

    def early(self, fake):
        data = stager.batches("train", 2, socket=fake.path)
        callback = self.lightning.Callback(types.SimpleNamespace(_stager=types.SimpleNamespace(feed=lambda: data._feed)))
        callback.setup(types.SimpleNamespace(world_size=1), None, "fit")
        return data, callback

    def test_batch_is_used_when_the_next_but_one_is_requested(self):
        fake = self.fake(2, 2, 2)
        data, callback = self.early(fake)
        passing, seen = iter(data), []
        next(passing)
        for want in ([], [0], [0, 1]):  # with the batch after it in the trainer's hands, or the end
            next(passing, None)
            seen.append((sorted(fake.acked) == want, data.samples_seen, callback.state_dict()["samples_seen"]))
        self.assertEqual(seen, [(True, 2, 2), (True, 4, 4), (True, 6, 6)])
        callback.on_train_epoch_end(None, None)
        self.assertEqual((sorted(fake.acked), data.epoch), ([0, 1, 2], 1))

    def test_position_is_behind_the_batch_that_was_used(self):
        for at in range(1, 5):
            fake = Fake(os.path.join(self.dir, f"{at}.sock"), [lines(self.dir, f"{n}.jsonl", 3) for n in range(3)])
            data, callback = self.early(fake)
            passing, used = iter(data), []
            requested = [next(passing)]
            for _ in range(at):
                used += [s["name"] for s in requested.pop(0)]
                requested += [batch for batch in [next(passing, None)] if batch]
            again, callback_of_again = self.early(fake)
            state = json.loads(json.dumps(callback.state_dict()))
            passing.close()
            callback_of_again.load_state_dict(state)
            self.assertEqual(again.samples_seen, len(used))
            used += [s["name"] for batch in again for s in batch]
            self.assertEqual((len(used), len(set(used))), (9, 9))
            fake.shutdown()
            fake.server_close()

    def test_several_processes_are_refused(self):
        callback = self.early(self.fake(1))[1]
        with self.assertRaisesRegex(stager.UsageError, "this job has 2"):
            callback.setup(types.SimpleNamespace(world_size=2), None, "fit")

    def test_each_written_step_is_committed_once(self):
        plugin = self.lightning.CheckpointIO("ckpt")
        plugin.checkpoint = mock.Mock()
        for name in ("step=5.ckpt", "last.ckpt", "epoch=0.ckpt"):
            plugin.save_checkpoint({"global_step": 5, "callbacks": {"stager": {"samples_seen": 20}}}, os.path.join(self.dir, name))
        plugin.checkpoint.commit.assert_called_once_with(os.path.join(self.dir, "step=5.ckpt"), step=5, samples_seen=20, all_nodes=True)
        self.assertEqual(len(plugin.saved), 3)

    def test_full_disk_leaves_no_part_of_a_file(self):
        def torn(_, __, path, ___):
            with open(path, "w") as file:
                file.write("torn")
            raise OSError(errno.EDQUOT, "quota")

        plugin, old = self.lightning.CheckpointIO("ckpt"), os.path.join(self.dir, "step=4.ckpt")
        with open(old, "w"), mock.patch.object(self.lightning._CheckpointIO, "save_checkpoint", torn):
            for path in (old, os.path.join(self.dir, "step=5.ckpt")):
                with self.assertRaisesRegex(stager.NoSpaceError, "no space for step="):
                    plugin.save_checkpoint({"global_step": 5}, path)
        self.assertEqual(os.listdir(self.dir), ["step=4.ckpt"])


class Trainer(Case):
    def test_callback_commits_and_saves_at_a_notice(self):
        from stager import hf

        socket = os.path.join(self.dir, "s.sock")
        callback = self.callback("ckpt", data=types.SimpleNamespace(state_dict=lambda: {"a": 1}, samples_seen=7), socket=socket)
        callback.checkpoint = mock.Mock()
        args, state = types.SimpleNamespace(output_dir=self.dir), types.SimpleNamespace(global_step=3, is_world_process_zero=True)
        saved = os.path.join(self.dir, "checkpoint-3")
        os.mkdir(saved)
        callback.on_save(args, state, None)
        callback.checkpoint.commit.assert_called_once_with(saved, step=3, samples_seen=7)
        self.assertEqual((hf.position(saved), hf.position(self.dir)), ({"a": 1}, None))
        self.assertEqual(self.restored(hf, saved), (saved, {"a": 1}))
        self.assertEqual(self.restored(hf, self.dir), (self.dir, None))
        self.assertEqual(self.restored(hf, saved, None), (None, None))
        asked = []
        for notice in (False, True, True):
            if notice:
                with open(os.path.join(self.dir, "PREEMPT"), "w"):
                    pass
            control = types.SimpleNamespace(should_save=False)
            with mock.patch.dict(os.environ):
                os.environ.pop("STAGER_PREEMPT", None)
                callback.on_step_end(args, state, control)
            asked.append(control.should_save)
        self.assertEqual(asked, [False, True, False])

    def callback(self, *args, exports=None, **options):
        sys.modules.pop("stager._hf_callback", None)
        library = types.SimpleNamespace(TrainerCallback=type("TrainerCallback", (), {}), trainer_callback=types.SimpleNamespace(ExportableState=exports))
        with mock.patch.dict(sys.modules, {"transformers": library}):
            return stager.hf.Callback(*args, **options)

    def test_position_is_part_of_the_last_file_of_a_checkpoint(self):
        from stager import hf

        callback = self.callback("ckpt", data=types.SimpleNamespace(state_dict=lambda: {"a": 1}, samples_seen=7), exports=type("ExportableState", (), {}))
        callback.checkpoint = mock.Mock()
        self.assertEqual(callback.state()["attributes"], {})  # no daemon is asked before the training
        args = types.SimpleNamespace(output_dir=self.dir)
        state = types.SimpleNamespace(global_step=3, is_world_process_zero=True, stateful_callbacks={"Other": [{"attributes": {}}]})
        callback.on_train_begin(args, state, None)
        with open(os.path.join(self.dir, "trainer_state.json"), "w") as file:
            json.dump({"stateful_callbacks": state.stateful_callbacks}, file)
        callback.on_save(args, state, None)
        self.assertEqual((os.listdir(self.dir), hf.position(self.dir)), (["trainer_state.json"], {"a": 1}))
        with self.assertRaisesRegex(stager.UsageError, "leave it False"):
            callback.from_state({})

    def test_step_that_is_saved_without_its_position_is_saved_again(self):
        callback = self.callback("ckpt", data=types.SimpleNamespace(state_dict=dict))
        os.mkdir(os.path.join(self.dir, "checkpoint-3"))
        args, state = types.SimpleNamespace(output_dir=self.dir), types.SimpleNamespace(global_step=3, is_world_process_zero=True)
        callback.checkpoint = mock.Mock(**{"commit.side_effect": [stager.RejectedError("other content"), True]})
        with mock.patch("time.sleep"):
            callback.on_save(args, state, None)
        self.assertEqual(callback.checkpoint.commit.call_count, 2)
        callback.checkpoint.commit.side_effect = stager.RejectedError("other content")
        with mock.patch("time.sleep"), mock.patch("time.monotonic", side_effect=[0.0, 1.0, 121.0]), self.assertRaises(stager.RejectedError):
            callback.on_save(args, state, None)

    def restored(self, hf, path, answer=types.MappingProxyType({"step": 3})):
        data = mock.Mock(**{"load_state_dict.return_value": None})
        with mock.patch.object(stager.Checkpoint, "restore", return_value=answer):
            result = hf.restore(path, data, output="ckpt")
        calls = data.load_state_dict.call_args_list
        return result, calls[0][0][0] if calls else None


if __name__ == "__main__":
    unittest.main()
