"""Goes wrong in a library that saves or reads by stager.

    errors.py save WAY | errors.py load KIND WORKERS     WAY is one of SAVES, KIND one of loader.KINDS

Each line of standard input is "ERROR SOCKET OUT": a process of its own does it, and prints a line of JSON: the classes of what was
raised, and of its causes, the text of the first that is stager's, and how many seconds it took. OUT is the directory of the output. In
the middle it may print "paused", and waits for a line.
"""

import contextlib
import json
import os
import sys
import time
import types

import stager
from stager import _daemon

PATIENCE = 2.0  # in place of 30 s, and 10 min
LARGE = 4 << 20  # bytes, more than a full disk takes
paused = []


def pause():
    if not paused:
        paused.append(True)
        print("paused", file=sys.__stdout__, flush=True)
        sys.stdin.readline()


class Pause:
    """Pauses when it is saved."""

    def __init__(self, pause):
        self.pause = pause

    def __reduce__(self):
        self.pause()
        return str, ()


def checkpoint(out, path, size, pause):
    if path != f"{out}/step-5":
        stager.Checkpoint("ckpt").commit(path)
    with stager.checkpoint(5) as directory:
        with open(f"{directory}/model.bin", "wb") as file:
            file.write(bytes(size))
        pause()


def dcp(out, path, size, pause):
    import torch
    import torch.distributed.checkpoint as of

    of.save({"weights": torch.zeros(size // 4), "pause": Pause(pause)}, storage_writer=stager.dcp.Writer(path))


def dcp_async(out, path, size, pause):
    import torch
    import torch.distributed.checkpoint as of

    of.async_save({"weights": torch.zeros(size // 4), "pause": Pause(pause)}, storage_writer=stager.dcp.Writer(path)).result()


def lightning(out, path, size, pause):
    import torch

    stager.lightning.CheckpointIO().save_checkpoint({"global_step": 5, "weights": torch.zeros(size // 4), "pause": Pause(pause)}, f"{path}.ckpt")


def orbax(out, path, size, pause):
    import jax.numpy as jnp
    import orbax.checkpoint as ocp

    with stager.orbax.CheckpointManager(os.path.dirname(path)) as manager:
        manager.save(5, args=ocp.args.StandardSave({"weights": jnp.arange(size // 4)}))
        pause()
        manager.wait_until_finished()


def hf(out, path, size, pause):
    import torch
    from transformers import Trainer, TrainingArguments

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = torch.nn.Parameter(torch.randn(size // 4))

        def forward(self, x, labels=None):
            return {"loss": (self.weights[:1] * x).sum()}

    class Paused(Trainer):
        def save_model(self, *args, **options):
            super().save_model(*args, **options)
            pause()

    args = TrainingArguments(os.path.dirname(path), max_steps=1, save_steps=1, use_cpu=True, report_to="none", disable_tqdm=True)
    Paused(Model(), args, train_dataset=[{"x": torch.ones(1), "labels": 0}] * 8, callbacks=[stager.hf.Callback()]).train()


def ray(out, path, size, pause):
    import ray.train

    class Made:
        @contextlib.contextmanager
        def as_directory(self):
            made = os.path.join(os.environ["MADE"], "made")
            os.makedirs(made, exist_ok=True)
            with open(f"{made}/model.bin", "wb") as file:
                file.write(bytes(size))
            pause()
            yield made

    storage = types.SimpleNamespace(experiment_fs_path=os.path.dirname(path), storage_filesystem=None)
    ray.train.get_context = lambda: types.SimpleNamespace(get_world_rank=lambda: 0, get_storage=lambda: storage)
    stager.ray.checkpoint_upload_fn(Made(), os.path.basename(path))


# What saves a checkpoint, and what is imported once for all.
SAVES = {
    "checkpoint": (checkpoint,),
    "dcp": (dcp, "stager.dcp"),
    "dcp_async": (dcp_async, "stager.dcp"),
    "lightning": (lightning, "stager.lightning"),
    "orbax": (orbax, "stager.orbax"),
    "hf": (hf, "stager.hf", "accelerate", "transformers.trainer"),
    "ray": (ray, "stager.ray"),
}


def save(error, out):
    path = f"{os.environ['MADE']}/outside/step-5" if error == "outside" else f"{out}/step-5"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    SAVES[sys.argv[2]][0](out, path, LARGE if error == "full" else 1024, pause if error in ("dies", "restarts") else lambda: None)


def load(error, out):
    data, _ = loader.KINDS[loader.kind][0]()
    if error in ("other", "foreign"):
        state = data.state_dict()
        if error == "other":
            state["input"] = "other"
        else:
            state["cursor"]["manifest"] = "0" * 64
        data.load_state_dict(state)
    batches = iter(loader.passing(data))
    next(batches)
    if error == "dies":
        pause()
        for _ in batches:
            pass
    if error == "fork":
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            os._exit(0)
        next(batches)
    if error == "fork-anew":
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
            os._exit(0)
        next(iter(loader.passing(data)))


def chain(err):
    """Returns an error, what is in it, and its causes."""
    found = []
    while err is not None and err not in found:
        found.append(err)
        for failure in getattr(err, "failures", {}).values():  # of a CheckpointException
            found += chain(failure[0])
        err = err.__cause__ or err.__context__
    return found


def report(goes_wrong, error, out):
    began, result = time.monotonic(), {"classes": [], "text": ""}
    try:
        with contextlib.redirect_stdout(sys.stderr):  # where libraries print, too
            goes_wrong(error, out)
    except BaseException as err:  # such as a CheckpointException of dcp
        errors = chain(err)
        texts = [str(e) for e in errors if isinstance(e, stager.StagerError)] + [str(err)]
        result = {"classes": [type(e).__name__ for e in errors], "text": texts[0]}
    print(json.dumps({**result, "seconds": time.monotonic() - began}), flush=True)
    os._exit(0)


def main():
    global loader
    goes_wrong = save if sys.argv[1] == "save" else load
    _daemon.call.__defaults__ = (None, PATIENCE)
    if goes_wrong is save:
        modules = SAVES[sys.argv[2]][1:]
    else:
        kind, workers = sys.argv[2:]
        sys.argv = ["loader.py", "", "1", workers, "0", kind]
        import loader

        loader.OPTIONS["patience"] = PATIENCE
        modules = loader.KINDS[kind][1:]
    for module in modules:
        __import__(module)
    for line in iter(sys.stdin.readline, ""):
        error, os.environ["STAGER_SOCKET"], out = line.split()
        pid = os.fork()
        if pid == 0:
            report(goes_wrong, error, out)
        os.waitpid(pid, 0)
        print("over", flush=True)


if __name__ == "__main__":
    main()
