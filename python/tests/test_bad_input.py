"""What is wrong with a call is an exception of the right class with one sentence, and no hang."""

import errno
import json
import os
import stat
import subprocess
import sys
import tempfile
import types
import unittest
from unittest import mock

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."), os.path.dirname(os.path.abspath(__file__))]

from daemon import Fake, lines

import stager
from stager import __main__, _daemon


class Clock:
    """Time that passes in sleep alone."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Case(unittest.TestCase):
    def setUp(self):
        where = tempfile.TemporaryDirectory()
        self.addCleanup(where.cleanup)
        self.dir, self.clock = where.name, Clock()
        log = mock.patch.object(_daemon.log, "disabled", True)  # waits are logged, which another test reads
        log.start()
        self.addCleanup(log.stop)
        for module in ("_daemon", "_feed", "_checkpoint", "_shards"):
            patch = mock.patch(f"stager.{module}.time", self.clock)
            patch.start()
            self.addCleanup(patch.stop)

    def fake(self, *counts, **options):
        name = os.path.join(self.dir, f"{len(os.listdir(self.dir))}.sock")
        fake = Fake(name, [lines(self.dir, f"{n}.jsonl", count) for n, count in enumerate(counts)], **options)
        self.addCleanup(fake.server_close)
        self.addCleanup(fake.shutdown)
        return fake

    def rejects(self, kind, words, use):
        with self.assertRaisesRegex(kind, words) as raised:
            use()
        self.assertIsInstance(raised.exception, stager.StagerError)
        self.assertNotIn("\n", str(raised.exception))


def calls(socket):
    """Each way to use a daemon."""
    return {
        "status": lambda: stager.status(socket=socket),
        "commit": lambda: stager.commit("ckpt", "/out/step-1", socket=socket),
        "cursor": lambda: stager.cursor("train", socket=socket),
        "shards": lambda: next(iter(stager.shards("train", socket=socket))),
        "batches": lambda: next(iter(stager.batches("train", 1, socket=socket))),
        "state": lambda: stager.batches("train", 1, socket=socket).state_dict(),
        "save": lambda: stager.Checkpoint("ckpt", socket=socket).save(1).__enter__(),
        "wait_durable": lambda: stager.Checkpoint("ckpt", socket=socket).wait_durable(1, 5),
        "latest": lambda: stager.Checkpoint(socket=socket).latest(),
        "restore": lambda: stager.Checkpoint("ckpt", socket=socket).restore("/nowhere"),
    }


class Daemons(Case):
    def each(self, kind, words, socket):
        for name, use in calls(socket).items():
            with self.subTest(name):
                self.rejects(kind, words, use)

    def test_absent(self):
        self.each(stager.UnreachableError, 'is "stager run" running', os.path.join(self.dir, "none"))
        self.assertGreater(self.clock.now, 30)  # it was awaited

    def test_dead(self):
        fake = Fake(os.path.join(self.dir, "dead"))
        fake.shutdown()
        fake.server_close()
        self.each(stager.UnreachableError, "Connection refused", fake.path)

    def test_file_in_place_of_its_socket(self):
        self.each(stager.UnreachableError, "Connection refused", lines(self.dir, "file", 1))

    def test_older_and_newer(self):
        self.each(stager.VersionError, "is older", self.fake(1, api=None).path)
        self.each(stager.VersionError, "has version 2 of the API", self.fake(1, api="2").path)
        self.assertEqual(self.clock.now, 0)

    def test_socket_without_permission(self):
        with mock.patch("socket.socket.connect", side_effect=PermissionError(13, "Permission denied")):
            self.each(stager.AccessError, "as the owner or in the group of the socket", os.path.join(self.dir, "s"))
        self.assertEqual(self.clock.now, 0)

    def test_path_that_is_too_long(self):
        self.each(stager.UsageError, "107 bytes, and .* has 20[0-9]", "/" + "x" * 200)
        self.assertEqual(self.clock.now, 0)

    def test_error_responses(self):
        for code, kind in ((404, stager.NotFoundError), (422, stager.RejectedError), (500, stager.InputFailedError), (503, stager.NotReadyError)):
            self.each(kind, "the test's will", self.fake(1, fail=code).path)


class States(Case):
    def test_that_are_not_of_this_input(self):
        fake = self.fake(2)
        good = stager.batches("train", 1, socket=fake.path).state_dict()
        other = stager.batches("other", 1, socket=fake.path).state_dict()
        for name, state, words in (
            ("another input", other, "but of other"), ("nothing", None, "not a state"), ("an empty list", [], "no state"), ("text", "x", "not a state"),
            ("a number in a list", [good, 3], "not a state"), ("no cursor", {**good, "cursor": None}, "not a state"),
            ("later version", {**good, "stager": 2}, "not a state"),
            ("part without samples", {**good, "partial": [[0, 1]]}, "not a state"), ("part of words", {**good, "partial": [[0, 1, ["a"]]]}, "not a state"),
            ("cursor in parts", {**good, "cursor": {"part": "0/1"}}, "not a state"),
        ):  # fmt: skip
            with self.subTest(name):
                self.rejects(stager.RejectedError, words, lambda state=state: stager.batches("train", 1, socket=fake.path).load_state_dict(state))

    def test_of_another_data_set(self):
        fake = self.fake(2)
        state = stager.batches("train", 1, socket=fake.path).state_dict()
        data = stager.batches("train", 1, socket=fake.path)
        fake.fail = 422
        self.rejects(stager.RejectedError, "the test's will", lambda: data.load_state_dict(state))


class Forks(Case):
    def test_child_cannot_continue_what_its_parent_uses(self):
        fake = self.fake(4)
        data = stager.batches("train", 1, socket=fake.path)
        passing, state = iter(data), data.state_dict()
        next(passing)
        for name, use in (("pass", lambda: next(passing)), ("begin", lambda: next(iter(data))), ("load", lambda: data.load_state_dict(state))):
            with self.subTest(name):
                read, write = os.pipe()
                child = os.fork()
                if child == 0:
                    try:
                        use()
                        said = "it continued"
                    except BaseException as err:
                        said = f"{type(err).__name__}: {err}"
                    os.write(write, said.encode())
                    os._exit(0)
                os.close(write)
                with os.fdopen(read) as file:
                    self.assertEqual(file.read(), "UsageError: the loader of input train belongs to the process that made it; make another in this one")
                os.waitpid(child, 0)
        self.assertEqual((len(list(passing)), fake.acked, fake.returned), (3, [0], []))


class Arguments(Case):
    def test_that_cannot_work(self):
        for kind, words, use in (
            (stager.UsageError, "must be positive", lambda: stager.batches("train", 0)),
            (stager.UsageError, "cannot be negative", lambda: stager.shards("train", ack_lag=-1)),
        ):  # fmt: skip
            self.rejects(kind, words, use)

    def test_output_must_be_named_unless_there_is_one(self):
        for names, words in (((), "has 0 outputs; name one"), (("a", "b"), "has 2 outputs: a, b; name one")):
            fake = self.fake(outputs={name: {"dir": self.dir} for name in names})
            self.rejects(stager.UsageError, words, lambda fake=fake: stager.Checkpoint(socket=fake.path).latest())

    def test_outputs_of_a_daemon_that_starts_are_awaited(self):
        fake = self.fake()
        fake.ready = False
        self.rejects(stager.UsageError, "has 0 outputs; name one", lambda: stager.Checkpoint(socket=fake.path).latest())
        self.assertGreater(self.clock.now, 30)
        with mock.patch.object(self.clock, "sleep", lambda _: fake.outputs.update(ckpt={"committed": {"step": 3}})):
            self.assertEqual(stager.Checkpoint(socket=fake.path).latest(), 3)


class Checkpoints(Case):
    def test_save_commits_and_replaces_the_step_of_a_run_before(self):
        out = os.path.join(self.dir, "out")
        os.makedirs(os.path.join(out, "step-3"))
        fake = self.fake(outputs={"ckpt": {"dir": out, "destination": "s3://b/"}})
        with stager.checkpoint(3, samples_seen=9, socket=fake.path) as directory, open(os.path.join(directory, "model"), "w"):
            pass
        self.assertEqual((os.listdir(out), os.listdir(os.path.join(out, "step-3"))), (["step-3"], ["model"]))
        self.assertEqual(fake.commits, [{"path": os.path.join(out, "step-3"), "samplesSeen": 9, "step": 3}])
        with self.assertRaises(KeyError), stager.checkpoint(4, socket=fake.path):
            raise KeyError
        self.assertEqual((os.listdir(out), len(fake.commits)), (["step-3"], 1))

    def test_wait_is_as_long_as_it_should_be(self):
        fake = self.fake(outputs={"ckpt": {"committed": {"step": 5}, "failed": [{"step": 7, "reason": "it is torn"}], "uploading": True}})
        at = stager.Checkpoint("ckpt", socket=fake.path)
        self.assertEqual((at.wait_durable(4, 0), at.latest()), (5, 5))
        self.rejects(stager.InputFailedError, "step 7 of output ckpt cannot be saved: it is torn", lambda: at.wait_durable(7, 9))
        self.rejects(stager.WaitTimeoutError, "step 6 .* within 9 s: it is being uploaded", lambda: at.wait_durable(6, 9))
        self.assertEqual(9 < self.clock.now < 12, True)

    def test_commit_of_all_nodes_and_what_is_durable(self):
        fake = self.fake(outputs={"ckpt": {}})
        self.assertFalse(stager.commit("ckpt", "/out/a", all_nodes=True, wait=3, socket=fake.path))
        self.assertEqual(fake.commits, [{"path": "/out/a", "samplesSeen": 0, "allNodes": True}])

    def test_full_disk_is_named_and_leaves_the_checkpoints_before(self):
        out = os.path.join(self.dir, "out")
        fake = self.fake(outputs={"ckpt": {"dir": out}})
        at = stager.Checkpoint(socket=fake.path)
        with at.save(3) as directory:
            lines(directory, "model", 1)
        blocks, quota = types.SimpleNamespace(f_blocks=9, f_bavail=0), OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        for failure, named in (
            (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True), (quota, True),
            (ValueError("I/O error: No space left on device (os error 28)"), True),  # of a library that writes files itself
            (RuntimeError("unexpected pos\n64 vs 0"), True),  # of torch.save
            (ValueError("a shape"), False), (OSError(errno.EIO, os.strerror(errno.EIO)), False),
        ):  # fmt: skip
            for step in (3, 4):

                def save(step=step, failure=failure):
                    with at.save(step) as directory:
                        lines(directory, "half", 1)
                        raise failure

                with self.subTest(failure, step=step), mock.patch("os.statvfs", return_value=blocks):
                    with self.assertRaises(OSError if named else type(failure)) as raised:
                        save()
                    self.assertIs(raised.exception if not named else raised.exception.__cause__, failure)
                    if named:
                        self.rejects(stager.NoSpaceError, f"^no space for step {step} in {out}, and what was written is removed; free .*: ", save)
                        self.assertEqual(raised.exception.errno, errno.ENOSPC)
                self.assertEqual((os.listdir(out), os.listdir(os.path.join(out, "step-3"))), (["step-3"], ["model"]))
        for free in ({"return_value": types.SimpleNamespace(f_blocks=9, f_bavail=1)}, {"side_effect": OSError(errno.EIO, "gone")}):
            with mock.patch("os.statvfs", **free), self.assertRaises(RuntimeError), at.save(4):
                raise RuntimeError("a shape")
        with at.save(4) as directory:
            lines(directory, "model", 1)
        self.assertEqual((sorted(os.listdir(out)), [c["step"] for c in fake.commits]), (["step-3", "step-4"], [3, 4]))

    def test_full_disk_before_and_after_the_files_are_written(self):
        out, rename, full = os.path.join(self.dir, "out"), os.rename, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fake = self.fake(outputs={"ckpt": {"dir": out}})
        at = stager.Checkpoint(socket=fake.path)

        def save():
            with at.save(3) as directory:
                lines(directory, "model", 1)

        with mock.patch("os.makedirs", side_effect=full):
            self.rejects(stager.NoSpaceError, "no space for step 3", save)
        save()
        for full_at in (out + "/step-3", out + "/.new-"):

            def fails(source, target, full_at=full_at):
                if source.startswith(full_at):
                    raise full
                rename(source, target)

            with mock.patch("os.rename", fails):
                self.rejects(stager.NoSpaceError, "no space for step 3", save)
            self.assertEqual((os.listdir(out), os.listdir(os.path.join(out, "step-3"))), (["step-3"], ["model"]))
        save()
        self.assertEqual((os.listdir(out), len(fake.commits)), (["step-3"], 2))

    def binary(self, text):
        path = os.path.join(self.dir, "binary")
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{text}\n")
        os.chmod(path, stat.S_IRWXU)
        return mock.patch.dict(os.environ, STAGER_BINARY=path)

    def test_restore_runs_the_binary(self):
        fake, new = self.fake(1, outputs={"ckpt": {"destination": "s3://b/"}}), os.path.join(self.dir, "new")
        at = stager.Checkpoint("ckpt", socket=fake.path)
        cursor = json.dumps({"step": 5, "cursors": {"train": {"settled": {"0": [[0, 0]]}}}})
        with self.binary(f"[ \"$1 $4 $5\" = 'restore s3://b/ {new}' ] && mkdir -p $5 && echo '{cursor}' >$5/RESTORED.json"):
            self.assertEqual((at.restore(new, rewind=False)["step"], fake.acked), (5, []))
            self.assertEqual((at.restore(new)["step"], fake.acked), (5, [0]))
        with self.binary("exit 0"):
            self.assertEqual([at.restore(os.path.join(self.dir, "none"), rewind=rewind) for rewind in (True, False)], [None, None])
        for text, words in (("echo a >&2; echo no store >&2; exit 69", "cannot restore to .*/x: no store"), ("exit 1", "no reason was given")):
            with self.binary(text):
                self.rejects(stager.StagerError, words, lambda: at.restore("/x"))
        with self.binary("exec sleep 60"):
            self.rejects(stager.WaitTimeoutError, "cannot restore to /x within 0.01 s", lambda: at.restore("/x", timeout=0.01))
        with mock.patch.dict(os.environ, STAGER_BINARY="/none"):
            self.rejects(stager.NotFoundError, "cannot run /none: .*; set STAGER_BINARY", lambda: at.restore("/x"))
        with mock.patch.dict(os.environ, PATH="", STAGER_BINARY=""):
            self.rejects(stager.NotFoundError, "not on PATH", lambda: at.restore("/x"))

    def test_staged_returns_a_directory_or_the_one_file(self):
        with self.binary('shift 2; [ "$1" = --include=*.x ] && shift; mkdir -p "$3"; echo 1 >"$3/a.x"'), mock.patch.dict(os.environ, XDG_CACHE_HOME=self.dir):
            every, one, some = stager.staged("s3://b/d/"), stager.staged("s3://b/a.x?region=r"), stager.staged("s3://b/d/", include="*.x")
        self.assertEqual((os.path.dirname(every), os.path.basename(one), os.listdir(every)), (os.path.join(self.dir, "stager", "staged"), "a.x", ["a.x"]))
        self.assertEqual(len({every, os.path.dirname(one), some}), 3)
        with self.binary("echo the disk is full >&2; exit 73"):
            self.rejects(stager.NoSpaceError, "cannot copy s3://b/d/ to /x: the disk is full", lambda: stager.staged("s3://b/d/", "/x"))
        with self.binary("echo access denied >&2; exit 77"):
            self.rejects(stager.StagerError, "cannot copy s3://b/d/ to /x: access denied", lambda: stager.staged("s3://b/d/?secret=s", "/x"))

    def test_module_is_the_binary(self):
        for text, code, out in (("echo $2", 0, "b\n"), ("exit 3", 3, "")):
            with self.binary(text):
                where = os.path.dirname(os.path.dirname(_daemon.__file__))
                done = subprocess.run([sys.executable, "-m", "stager", "a", "b"], capture_output=True, text=True, cwd=where)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, out, ""))
        for binary in ("", "/none"):
            with mock.patch.dict(os.environ, PATH="", STAGER_BINARY=binary), mock.patch("sys.stderr") as err:
                self.assertEqual((__main__.main([]), err.write.called), (69, True))


if __name__ == "__main__":
    unittest.main()
