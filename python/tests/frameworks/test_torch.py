"""Tests of what needs PyTorch, and WebDataset where it is installed, against a fake daemon."""

import collections
import gc
import multiprocessing
import multiprocessing.connection
import os
import subprocess
import sys
import tempfile
import threading
import types
import unittest
from typing import ClassVar
from unittest import mock

here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "..", ".."), os.path.join(here, "..")]

import torch.utils.data
from daemon import Fake, lines, tar

import stager
import stager.hf
import stager.torch
from stager import _errors


class FakeDataset(torch.utils.data.IterableDataset):
    """What stager.hf uses of a datasets.IterableDataset. Like it, it divides what it has among the workers of a loader."""

    def __init__(self, rows, epoch=0):
        self.rows, self.epoch = rows, epoch

    @classmethod
    def from_generator(cls, generator, features=None, gen_kwargs=None):
        return cls(list(generator(**gen_kwargs)))

    def map(self, function, batched=False):
        columns = collections.defaultdict(list)
        for row in self.rows:
            for name, value in row.items():
                columns[name].append(value)
        made = function(columns) if batched else None
        return FakeDataset([dict(zip(made, of)) for of in zip(*made.values())] if batched else [function(row) for row in self.rows])

    def filter(self, function):
        return FakeDataset([row for row in self.rows if function(row)])

    def shuffle(self, seed):
        return FakeDataset(self.rows[::-1])

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        if worker is None or worker.id == 0:
            yield from self.rows


def read_lines(path):
    with open(path) as file:
        yield from file


def twice(columns):
    return {"token": [name for name in columns["name"] for _ in range(2)]}


class Case(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.dir = where.name

    def fake(self, *shards, **options):
        fake = Fake(os.path.join(self.dir, f"{len(os.listdir(self.dir))}.sock"), shards, **options)
        self.addCleanup(fake.server_close)
        self.addCleanup(fake.shutdown)
        return fake

    def lines(self, *counts):
        return self.fake(*[lines(self.dir, f"{n}.jsonl", count) for n, count in enumerate(counts)])


class Loader(Case):
    def test_each_sample_is_used_once_by_any_number_of_workers(self):
        orders = []
        for workers in (0, 2):
            fake, seen, acked = self.lines(5, 3, 0, 7), [], []
            dataset = stager.torch.SampleDataset("train", shuffle=4, seed=1, socket=fake.path)
            data = stager.torch.loader(dataset, batch_size=2, num_workers=workers, timeout=60 if workers else 0)
            for batch in data:
                acked.append(len(fake.acked))
                seen += batch["name"]
            self.assertEqual((len(seen), len(set(seen)), data.epoch, data.samples_seen), (15, 15, 1, 15))
            self.assertEqual((sorted(fake.acked), acked[0], acked[-1] < 4), ([0, 1, 2, 3], 0, True))
            orders.append(seen)
        self.assertEqual(orders[0], orders[1])

    def test_state_resumes_with_another_number_of_workers(self):
        fake, seen, state = self.lines(5, 6, 7), [], None
        for workers, stop in ((2, 3), (0, 5), (3, None)):
            data = stager.torch.loader(stager.torch.SampleDataset("train", socket=fake.path), batch_size=2, num_workers=workers)
            if state:
                data.load_state_dict(state)
            for at, batch in enumerate(data, 1):
                seen += batch["name"]
                state = data.state_dict()
                if at == stop:
                    break
            self.assertEqual(data.samples_seen, len(seen))
        self.assertEqual((len(seen), len(set(seen))), (18, 18))

    def test_samples_one_by_one_and_workers_that_persist(self):
        fake = self.lines(3, 3)
        dataset = stager.torch.ShardDataset("train", read_lines, socket=fake.path)
        data = stager.torch.loader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
        self.assertEqual((len(list(data)), sorted(fake.acked)), (6, [0, 1]))

    def test_errors_of_the_daemon_keep_their_class_in_a_worker(self):
        for workers in (0, 1):
            fake = self.fake(os.path.join(self.dir, "not-there.jsonl"))
            data = stager.torch.loader(stager.torch.SampleDataset("train", socket=fake.path), num_workers=workers)
            with self.assertRaisesRegex(FileNotFoundError, "not-there"):
                list(data)
            fake = self.lines(1)
            data = stager.torch.loader(stager.torch.SampleDataset("train", socket=fake.path), num_workers=workers)
            data.epoch  # noqa: B018 - it asks for the cursor
            fake.fail = 404
            with self.assertRaisesRegex(stager.NotFoundError, "^it is the test's will$"):
                list(data)

    def test_loader_of_torch_is_refused(self):
        dataset = stager.torch.SampleDataset("train", socket=self.lines(1).path)
        for kind, make in (("DataLoader", lambda: torch.utils.data.DataLoader(dataset)), ("a list", lambda: stager.torch.loader([1]))):
            with self.subTest(kind), self.assertRaisesRegex(stager.UsageError, "stager.torch.loader"):
                list(make())

    def test_workers_raise_all_classes(self):
        for name in ("NotFoundError", "WindowTooSmallError", "UnreachableError"):
            end = mock.Mock(**{"poll.return_value": True, "recv.return_value": ("error", name, "why")})
            with self.assertRaisesRegex(getattr(_errors, name), "why"):
                stager.torch._ask(end, os.getppid(), 1, 0)
        with self.assertRaisesRegex(stager.UnreachableError, "has ended"):
            stager.torch._ask(mock.Mock(**{"poll.return_value": False}), -1, 1, 0)


class Starting(Case):
    def loader(self):
        dataset = stager.torch.SampleDataset("train", socket=os.path.join(self.dir, "s.sock"), patience=self.patience)
        return stager.torch.loader(dataset, num_workers=2)

    def test_workers_start_while_the_daemon_is_waited_for(self):
        # They started when the source was listed, so that the first batch came later by as long as that takes.
        self.patience = 60
        data, shard = self.loader(), lines(self.dir, "0.jsonl", 6)

        def start():
            while threading.main_thread().is_alive() and len(multiprocessing.active_children()) < 2:
                multiprocessing.connection.wait([], 0.01)
            fake = Fake(os.path.join(self.dir, "s.sock"), [shard])
            self.addCleanup(fake.server_close)
            self.addCleanup(fake.shutdown)

        threading.Thread(target=start, daemon=True).start()
        self.assertEqual(len(list(data)), 6)

    def test_an_absent_daemon_leaves_no_workers(self):
        self.patience = 0.1
        with self.assertRaisesRegex(stager.UnreachableError, 'is "stager run" running'):
            list(self.loader())
        gc.collect()
        self.assertEqual(multiprocessing.active_children(), [])


class Waiting(Fake):
    """A daemon that has no shard yet."""

    def __init__(self, *args):
        self.asked, self.closing = threading.Event(), threading.Event()
        super().__init__(*args)

    def answer(self, method, path, body):
        if "/lease?" not in path:
            return super().answer(method, path, body)
        self.asked.set()
        self.closing.wait(0.1)
        return 204, None

    def handle_error(self, *_):
        pass  # who asked was killed


TRAINER = """
import sys
import stager.torch

for _ in stager.torch.loader(stager.torch.SampleDataset("train", socket=sys.argv[1]), num_workers=2):
    pass
"""


class Orphans(Case):
    def test_workers_of_a_killed_trainer_end_and_lease_nothing(self):
        # Workers that waited for a shard when their trainer got a SIGKILL went on waiting for minutes, and leased
        # from the next daemon at that socket, whose shards nobody used.
        path = os.path.join(self.dir, "s.sock")
        first = Waiting(path)
        trainer = subprocess.Popen([sys.executable, "-c", TRAINER, path], stdout=subprocess.PIPE, env=dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)))
        self.addCleanup(trainer.stdout.close)
        self.addCleanup(trainer.kill)
        self.assertTrue(first.asked.wait(300), "no worker asks for a shard")
        trainer.kill()
        first.closing.set()
        first.shutdown()
        first.server_close()
        os.remove(path)
        second = Fake(path, [lines(self.dir, f"{n}.jsonl", 3) for n in range(4)])
        self.addCleanup(second.server_close)
        self.addCleanup(second.shutdown)
        trainer.communicate(timeout=120)  # the workers have its standard output, too
        self.assertEqual((second.leased, len(second.waiting)), ({}, 4))


class Copied(FakeDataset):
    """A map-style Dataset: it has its rows in a cache."""

    __module__ = "datasets.arrow_dataset"
    cache_files: ClassVar = [{"filename": "/cache/datasets/json/0.arrow"}]

    def to_iterable_dataset(self):
        return FakeDataset(self.rows)


class HuggingFace(Case):
    def test_copies_outside_of_the_window_are_warned_of_once(self):
        def read(path):
            return Copied([{"name": f"{path}:{i}"} for i in range(2)])

        with mock.patch.dict(sys.modules, {"datasets": types.SimpleNamespace(IterableDataset=FakeDataset)}):
            sys.modules.pop("stager._hf_dataset", None)
            data = stager.torch.loader(stager.hf.dataset("train", read=read, socket=self.lines(2, 2).path), batch_size=2)
            with self.assertLogs("stager", "WARNING") as logs:
                self.assertEqual(len(list(data)), 2)
        self.assertEqual(len(logs.output), 1)
        self.assertRegex(logs.output[0], "in /cache/datasets/json: each shard is copied there, .* return what load_dataset returns with streaming=True")
        with self.assertRaisesRegex(stager.UsageError, "not Copied: what load_dataset returns without streaming=True is a copy"):
            stager.torch.loader(Copied([]))

    def test_each_sample_is_used_once_through_the_methods_of_the_library(self):
        library = types.SimpleNamespace(IterableDataset=FakeDataset)
        for workers in (0, 2):
            fake, seen = self.lines(4, 5, 0, 3), []
            with mock.patch.dict(sys.modules, {"datasets": library}):
                sys.modules.pop("stager._hf_dataset", None)
                dataset = stager.hf.dataset("train", socket=fake.path).map(twice, batched=True)
                dataset = dataset.filter(lambda row: not row["token"].startswith("0.jsonl:1")).shuffle(seed=2)
                data = stager.torch.loader(dataset, batch_size=3, num_workers=workers)
                for batch in data:
                    seen += batch["token"]
            counts = collections.Counter(seen)
            self.assertEqual((len(seen), len(counts), set(counts.values()), sorted(fake.acked)), (22, 11, {2}, [0, 1, 2, 3]))

    def test_methods_that_cannot_work_are_refused(self):
        with mock.patch.dict(sys.modules, {"datasets": types.SimpleNamespace(IterableDataset=FakeDataset)}):
            sys.modules.pop("stager._hf_dataset", None)
            dataset = stager.hf.dataset("train")
            for use, words in ((lambda: dataset.take(3), "leave the training loop"), (lambda: dataset.shuffle(), "needs a seed")):
                with self.assertRaisesRegex(stager.UsageError, words):
                    use()
            with self.assertRaisesRegex(AttributeError, "it has add_column, batch, cast"):
                dataset.to_pandas()


@unittest.skipUnless(__import__("importlib.util").util.find_spec("webdataset"), "WebDataset is not installed")
class WebDataset(Case):
    def test_each_sample_is_used_once_through_the_methods_of_the_library(self):
        paths = [tar(self.dir, f"{n}.tar", {f"{n}{i}.cls": b"%d" % i for i in range(count)}) for n, count in enumerate((4, 3, 5))]
        orders = []
        for workers in (0, 2):
            fake = self.fake(*paths)
            dataset = stager.webdataset("train", socket=fake.path).shuffle(4, seed=3).decode().select(lambda s: s["cls"] != 1).to_tuple("__key__", "cls")
            data = stager.torch.loader(dataset, batch_size=2, num_workers=workers)
            orders.append([key for keys, _ in data for key in keys])
            self.assertEqual((len(orders[-1]), len(set(orders[-1])), sorted(fake.acked)), (9, 9, [0, 1, 2]))

    def test_stages_of_several_samples_are_refused(self):
        import webdataset as wds

        dataset = stager.webdataset("train", socket=self.fake(tar(self.dir, "a.tar", {"1.cls": b"1"})).path)
        for use, words in (
            (lambda: dataset.batched(3), "batch_size of stager.torch.loader"), (lambda: dataset.compose(wds.shuffle(3)), r"shuffle\(size, seed"),
            (lambda: dataset.with_epoch(3), "epochs of the plan"), (lambda: list(stager.torch.loader(dataset.compose(double))), "made 2 samples of one"),
        ):  # fmt: skip
            with self.assertRaisesRegex(stager.UsageError, words):
                use()


def double(samples):
    for sample in samples:
        yield sample
        yield sample


if __name__ == "__main__":
    unittest.main()
