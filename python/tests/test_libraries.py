"""Tests of loaders and checkpoints of libraries, with stand-ins for what they import: the trainers' tests use the libraries themselves."""

import errno
import os
import shutil
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), os.path.dirname(os.path.abspath(__file__))]

from daemon import Fake, lines

import stager
from stager._formats import open_samples


class Case(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.dir, self.count = where.name, 0

    def fake(self, *counts, **options):
        self.count += 1
        shards = [lines(self.dir, f"{n}.jsonl", count) for n, count in enumerate(counts)]
        fake = Fake(os.path.join(self.dir, f"{self.count}.sock"), shards, **options)
        self.addCleanup(fake.server_close)
        self.addCleanup(fake.shutdown)
        return fake

    def imports(self, module, **libraries):
        """Imports a module of the package with stand-ins for libraries, by name with __ for each dot."""
        names = {name.replace("__", "."): library for name, library in libraries.items()}
        patch = mock.patch.dict(sys.modules, names)
        patch.start()
        self.addCleanup(patch.stop)
        sys.modules.pop(module, None)
        __import__(module)
        return sys.modules[module]


class Loader(Case):
    """A loader that reads ahead of the training loop."""

    def reads(self, make):
        """Checks what the samples are, when shards of 4, 3, 0 and 5 samples are acknowledged, and that a pass that was left continues."""
        fake, seen, acked = self.fake(4, 3, 0, 5), [], []
        data = make(fake.path)
        for batch in data:
            acked.append(sorted(fake.acked))
            seen += batch
        self.assertEqual(seen, [f"{n}.jsonl:{i}" for n, count in enumerate((4, 3, 0, 5)) for i in range(count)])
        self.assertEqual(acked, [[], [], [0], [0], [0, 1, 2], [0, 1, 2]])
        self.assertEqual((sorted(fake.acked), data.epoch, data.samples_seen), ([0, 1, 2, 3], 1, 12))
        for stop in range(1, 6):
            fake, seen = self.fake(4, 3, 0, 5), []
            passing, again = iter(data := make(fake.path)), make(fake.path)
            for _ in range(stop):
                seen += next(passing)
            state = data.state_dict()
            passing.close()
            again.load_state_dict(state)
            for batch in again:
                seen += batch
            self.assertEqual((len(seen), len(set(seen)), again.samples_seen, sorted(fake.acked)), (12, 12, 12, [0, 1, 2, 3]))


class Numbers(list):
    def numpy(self):
        return self

    def reshape(self, _):
        return self


class FakeTf:
    """What stager.tf uses of a tf.data.Dataset."""

    def __init__(self, make):
        self.make = make

    @classmethod
    def from_generator(cls, generator, output_signature):
        return cls(generator)

    def map(self, function, num_parallel_calls=None):
        return FakeTf(lambda: (function(n, value) for n, value in self.make()))

    def batch(self, size):
        def batches():
            of = list(self.make())
            for at in range(0, len(of), size):
                yield Numbers(n for n, _ in of[at : at + size]), [value for _, value in of[at : at + size]]

        return FakeTf(batches)

    def padded_batch(self, size, shapes, values):
        assert (shapes, values) in ((None, None), (((), (3,)), (None, 0)))
        return self.batch(size)

    def prefetch(self, size):
        return FakeTf(lambda: iter(list(self.make())))

    def __iter__(self):
        return iter(self.make())


class TensorFlow(Loader):
    def setUp(self):
        super().setUp()
        library = types.SimpleNamespace(data=types.SimpleNamespace(Dataset=FakeTf), TensorSpec=lambda *_: None, int64=None)
        self.tf = self.imports("stager.tf", tensorflow=library)

    def test_batch_is_used_when_the_next_is_requested(self):
        self.reads(lambda path: self.tf.dataset("train", None, decode=lambda row: row["name"], socket=path).map(str, num_parallel_calls=2).batch(2).prefetch(9))
        self.reads(lambda path: self.tf.dataset("train", None, decode=lambda row: (row["name"], 1), socket=path).map(lambda name, _: name).padded_batch(2))

    def test_padded_batch_leaves_the_numbers_of_samples(self):
        data = self.tf.dataset("train", None, socket=self.fake(3).path).padded_batch(2, padded_shapes=(3,), padding_values=0)
        self.assertEqual([len(batch) for batch in data], [2, 1])

    def test_errors_keep_their_class(self):
        with self.assertRaises(KeyError):
            list(self.tf.dataset("train", None, decode=lambda row: row["none"], socket=self.fake(3).path).batch(2))

    def test_pass_is_ended_with_the_interpreter(self):
        fake = self.fake(3)
        passing = iter(self.tf.dataset("train", None, socket=fake.path).batch(1))
        next(passing)
        self.tf._close()
        self.assertEqual((list(passing), fake.acked, fake.returned), ([], [], [0]))

    def test_methods_that_cannot_work_are_refused(self):
        data = self.tf.dataset("train", None)
        with self.assertRaisesRegex(stager.UsageError, "no shuffle: use the options shuffle and seed"):
            data.shuffle(9)
        with self.assertRaisesRegex(AttributeError, "it has map, padded_batch, batch, prefetch"):
            data.unbatch()


class FakeIterator:
    """A grain.DatasetIterator that prefetches one element, with the state behind it."""

    def __init__(self, parent=None):
        self.parent, self.ahead, self.state = parent, None, None

    def __iter__(self):
        return self

    def fetch(self):
        try:
            self.ahead = next(self.parent), self.parent.get_state()
        except StopIteration:
            self.ahead = None

    def __next__(self):
        if self.state is None:
            self.fetch()
        if self.ahead is None:
            raise StopIteration
        element, self.state = self.ahead
        self.fetch()
        return element

    def get_state(self):
        return {"buffer": [1], "parents": [self.state]}


class FakeIterDataset:
    def __init__(self, *parents):
        self._parents = parents

    def batch(self, size):
        return BatchIterDataset(self, size)


class BatchIterDataset(FakeIterDataset):
    def __init__(self, parent, size):
        super().__init__(parent)
        self.size = size

    def __iter__(self):
        return FakeIterator(BatchIterator(iter(self._parents[0]), self.size))


class BatchIterator:
    def __init__(self, parent, size):
        self.parent, self.size, self.get_state = parent, size, parent.get_state

    def __next__(self):
        batch = [sample for _, sample in zip(range(self.size), self.parent)]
        if not batch:
            raise StopIteration
        return batch


class WindowShuffleIterDataset(FakeIterDataset):
    pass


class MapIterDataset(FakeIterDataset):
    def __iter__(self):
        without = FakeIterator(iter(self._parents[0]))
        without.get_state = dict
        return without


class Grain(Loader):
    def setUp(self):
        super().setUp()
        self.grain = self.imports("stager.grain", grain=types.SimpleNamespace(DatasetIterator=FakeIterator, IterDataset=FakeIterDataset))

    def test_batch_is_used_when_the_next_is_requested(self):
        self.reads(lambda path: self.grain.loader("train", lambda samples: samples.batch(2), decode=lambda row: row["name"], socket=path))

    def test_datasets_that_cannot_work_are_refused(self):
        fake = self.fake(3)
        for words, through in (
            ("cannot tell which samples WindowShuffleIterDataset has used", WindowShuffleIterDataset),
            ("cannot tell which samples list has used", lambda _: BatchIterDataset([], 1)),
            ("does not keep the states", MapIterDataset),
        ):
            with self.subTest(words), self.assertRaisesRegex(stager.UsageError, words):
                list(self.grain.loader("train", through, socket=fake.path))
        self.assertEqual(fake.acked, [])

    def test_samples_stay_in_their_process(self):
        source = self.grain._SourceIterDataset(None)
        for use, words in ((source.__reduce__, "use threads"), (lambda: self.grain._SourceIterator(iter(())).set_state({}), "load_state_dict")):
            with self.assertRaisesRegex(stager.UsageError, words):
                use()


class FakeManager:
    """What stager.orbax uses of an orbax.checkpoint.CheckpointManager. Every second step is due."""

    def __init__(self, directory, options=None):
        self.directory = directory

    def save(self, step):
        if step % 2:
            return False
        os.makedirs(os.path.join(self.directory, f"step_{step}"))
        self._finalize_checkpoint(step)
        return True

    def _finalize_checkpoint(self, step):
        self.final = step


class Orbax(Case):
    def setUp(self):
        super().setUp()
        names = types.SimpleNamespace(
            standard_name_format=lambda step_prefix, step_format_fixed_length: step_prefix,
            build_step_path=lambda at, prefix, n: os.path.join(at, f"{prefix}_{n}"),
        )
        self.library = types.ModuleType("orbax.checkpoint")
        self.library.CheckpointManager, self.library.path = FakeManager, types.SimpleNamespace(step=names)
        self.library.CheckpointManagerOptions = lambda: types.SimpleNamespace(step_name_format=None, step_prefix="step", step_format_fixed_length=None)
        self.jax, package = types.SimpleNamespace(process_index=lambda: 0), types.ModuleType("orbax")
        package.checkpoint = self.library
        self.orbax = self.imports("stager.orbax", orbax=package, orbax__checkpoint=self.library, jax=self.jax)

    def test_each_saved_step_is_committed(self):
        fake, data = self.fake(outputs={"ckpt": {}}), types.SimpleNamespace(samples_seen=7)
        manager = self.orbax.CheckpointManager(self.dir, data=data, socket=fake.path)
        self.assertEqual([manager.save(4), manager.save(5), manager.final], [True, False, 4])
        self.assertEqual(fake.commits, [{"path": os.path.join(self.dir, "step_4"), "samplesSeen": 7, "step": 4, "allNodes": True}])
        self.jax.process_index = lambda: 1
        manager.save(6)
        self.assertEqual((manager.final, len(fake.commits)), (6, 1))

    def test_other_versions_are_refused(self):
        with mock.patch.object(self.library, "CheckpointManager", object), self.assertRaisesRegex(stager.UsageError, "use ocp.CheckpointManager"):
            self.orbax.CheckpointManager(self.dir)


class Ray(Case):
    def setUp(self):
        super().setUp()
        storage = types.SimpleNamespace(experiment_fs_path=os.path.join(self.dir, "out", "run"), storage_filesystem="local")
        self.context = types.SimpleNamespace(get_world_rank=lambda: 0, get_storage=lambda: storage)
        train = types.ModuleType("ray.train")
        train.get_context, train.Checkpoint = lambda: self.context, lambda path, filesystem: (path, filesystem)
        package = types.ModuleType("ray")
        package.train = train
        arrays, tensors = types.SimpleNamespace(asarray=list), types.SimpleNamespace(as_tensor=tuple)
        self.ray = self.imports("stager.ray", ray=package, ray__train=train, numpy=arrays, torch=tensors)

    def test_batches_are_columns(self):
        fake = self.fake(2, 3)
        data = self.ray.dataset("train", socket=fake.path)
        self.assertEqual(data._feed.reader.rpartition("-")[2], "rank0")
        self.assertEqual([b["name"] for b in data.iter_torch_batches(batch_size=3)], [("0.jsonl:0", "0.jsonl:1", "1.jsonl:0"), ("1.jsonl:1", "1.jsonl:2")])
        self.assertEqual((fake.acked, data.epoch, data.samples_seen), ([0, 1], 1, 5))
        with mock.patch.object(self.context, "get_world_rank", side_effect=RuntimeError):  # outside of a trainer
            data = self.ray.dataset("train", decode=lambda row: len(row), socket=self.fake(2).path)
        self.assertEqual(list(data.iter_batches()), [{"item": [1, 1]}])

    def test_reported_checkpoint_is_committed(self):
        fake, path = self.fake(outputs={"ckpt": {}}), os.path.join(self.dir, "out", "run", "step-5")
        made = os.path.join(self.dir, "made")
        for words in ("first", "second"):  # the second one is of a run that continues
            os.makedirs(made)
            with open(os.path.join(made, words), "w") as file:
                file.write(words)
            checkpoint = mock.MagicMock()
            checkpoint.as_directory.return_value.__enter__.return_value = made
            self.assertEqual(self.ray.checkpoint_upload_fn(checkpoint, "step-5", samples_seen=9, socket=fake.path), (path, "local"))
            self.assertEqual((os.listdir(path), os.listdir(os.path.dirname(path))), ([words], ["step-5"]))
            shutil.rmtree(made)
        self.assertEqual(fake.commits, 2 * [{"path": path, "samplesSeen": 9, "allNodes": True}])
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copying = mock.patch("shutil.copytree", side_effect=shutil.Error([(made, path, str(full))]))
        with copying, self.assertRaisesRegex(stager.NoSpaceError, "no space for step-6"):
            self.ray.checkpoint_upload_fn(checkpoint, "step-6")
        self.assertEqual(os.listdir(os.path.dirname(path)), ["step-5"])
        with self.assertRaisesRegex(stager.UsageError, "is not in its name"):
            self.ray.checkpoint_upload_fn(checkpoint, "checkpoint_2026-01-01_10-00-00")
        self.context.get_world_rank = lambda: 1
        with self.assertRaisesRegex(stager.UsageError, "rank 1 reports a checkpoint, too"):
            self.ray.checkpoint_upload_fn(checkpoint, "step-5")


class Parquet(Case):
    def test_rows_are_samples(self):
        class Table(list):
            @property
            def num_rows(self):
                return len(self)

            def slice(self, at, count):
                return types.SimpleNamespace(to_pylist=lambda: self[at : at + count])

        def reads(rows, says=3, path="n", new=True):
            def opened(_, **options):
                if options and not new:
                    raise TypeError("an argument that it does not have")
                self.assertEqual(options, {"page_checksum_verification": True} if new else {})
                return file

            tables = [Table([{"n": 0}, {"n": 1}]), Table(rows)]
            groups = [types.SimpleNamespace(num_rows=n, num_columns=1, column=lambda _: types.SimpleNamespace(path_in_schema=path)) for n in (2, 1)]
            file = mock.MagicMock(num_row_groups=2, read_row_group=lambda i: tables[i])
            file.metadata = types.SimpleNamespace(row_group=lambda i: groups[i], num_rows=says)
            file.schema.column = lambda _: types.SimpleNamespace(path="n")
            package = types.ModuleType("pyarrow")
            package.parquet = types.SimpleNamespace(ParquetFile=opened)
            with mock.patch.dict(sys.modules, {"pyarrow": package, "pyarrow.parquet": package.parquet}):
                of = open_samples("/x/a.parquet")
            return [of.load(i)["n"] for i in range(of.count)]

        self.assertEqual(reads([{"n": 2}]), [0, 1, 2])
        self.assertEqual(reads([{"n": 2}], new=False), [0, 1, 2])
        for words, damage in (
            ("its row groups have 3 rows, and the file 4", {"rows": [{"n": 2}], "says": 4}),
            ("row group 1 does not have the rows", {"rows": []}),
            ("row group 0 does not have the rows", {"rows": [{"n": 2}], "path": "m"}),
        ):
            with self.assertRaisesRegex(stager.FormatError, f"/x/a.parquet is damaged: {words}"):
                reads(**damage)
        with mock.patch.dict(sys.modules, {"pyarrow": None, "pyarrow.parquet": None}), self.assertRaisesRegex(stager.FormatError, "needs the package pyarrow"):
            open_samples("/x/a.parquet")


if __name__ == "__main__":
    unittest.main()
