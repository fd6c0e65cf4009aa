"""Records how libraries write checkpoints: python3 record.py NAME...

record.py runs each case below under strace with the Python that runs record.py, and writes
testdata/NAME-VERSION.jsonl.bz2: the operations on the output directory in order, one a line,
with the seconds since the first. The tests replay them. The first line holds the
versions of the libraries. "mark" lines say that a step is complete, as the library's
own return or callback reports it.

    python3 record.py --install VENV NAME=VERSION...    # a Python with these packages
    VENV/bin/python record.py torch_save safetensors    # these cases
    VENV/bin/python record.py                           # every case that can be imported
    VENV/bin/python record.py --write torch_save DIR    # the case itself, into a directory
    VENV/bin/python load.py torch_save DIR              # the library loads what was restored
"""

import base64
import bz2
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "testdata")
CALLS = ("openat,creat,open,close,fsync,fdatasync,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,write,pwrite64,writev,pwritev,pwritev2,"
         "ftruncate,fallocate,link,linkat,symlink,symlinkat,sendfile,copy_file_range,lseek")
MARK = "/stager-mark/"
CASES = {}


def case(*packages):
    """A case, and the packages whose versions name its fixture; the first must import."""
    def add(f):
        CASES[f.__name__] = (f, packages)
        return f
    return add


def version(package):
    """The distribution of a package that is installed, and its version, or two Nones. A package may
    have several names: "xgboost-cpu|xgboost"."""
    for name in package.split("|"):
        try:
            return name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            pass
    return None, None


def mark(name):
    """Leaves a call in the log: the checkpoint of this name is complete. STAGER_MARKS names a
    file for a line of it, with the time."""
    if "STAGER_MARKS" in os.environ:
        with open(os.environ["STAGER_MARKS"], "a") as f:
            f.write(f"{name}\t{time.time():.3f}\n")
    try:
        os.mkdir(MARK + name)
    except FileNotFoundError:
        pass


def model_and_optimizer():
    import torch

    torch.manual_seed(1)
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(8)).sum().backward()
    optimizer.step()
    return model, optimizer


@case("torch")
def torch_save(out):
    import torch

    model, _ = model_and_optimizer()
    for step in (500, 1000):
        torch.save({"model": model.state_dict(), "step": step}, f"{out}/model-{step}.pt")
        mark(f"model-{step}.pt")


@case("torch")
def torch_save_legacy(out):
    import torch

    model, _ = model_and_optimizer()
    for step in (500, 1000):
        torch.save({"model": model.state_dict(), "step": step}, f"{out}/model-{step}.pt", _use_new_zipfile_serialization=False)
        mark(f"model-{step}.pt")


@case("torch")
def torch_save_directory(out):
    import torch

    model, optimizer = model_and_optimizer()
    for step in (500, 1000, 1500):
        os.mkdir(f"{out}/step-{step}")
        torch.save(model.state_dict(), f"{out}/step-{step}/model.pt")
        torch.save(optimizer.state_dict(), f"{out}/step-{step}/optim.pt")
        mark(f"step-{step}")


def ranks(work, out):
    """Runs work(rank, out) in two processes of one group."""
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as top:
        mp.start_processes(grouped, args=(work, out, os.path.join(top, "store")), nprocs=2, start_method="fork")


def grouped(rank, work, out, store):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    work(rank, out)
    dist.barrier()
    dist.destroy_process_group()


def saves(how):
    def work(rank, out):
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        model = torch.nn.Linear(8, 8)
        for step in (500, 1000):
            state = {"w": model.state_dict(), f"only{rank}": torch.ones(8) * rank}
            how(dcp, state, f"{out}/step-{step}")
            dist.barrier()
            if rank == 0:
                mark(f"step-{step}")
            dist.barrier()
    return work


def dcp_save(dcp, state, to):
    save = getattr(dcp, "save", None) or dcp.save_state_dict  # torch 2.1 has only this one
    save(state, storage_writer=dcp.FileSystemWriter(to))


@case("torch")
def torch_dcp(out):
    ranks(saves(dcp_save), out)


@case("torch")
def torch_dcp_async(out):
    ranks(saves(lambda dcp, state, to: dcp.async_save(state, checkpoint_id=to).result()), out)


@case("torch")
def torch_dcp_no_collectives(out):
    ranks(saves(lambda dcp, state, to: dcp.save(state, checkpoint_id=to, use_collectives=False)), out)


def sharded_model_and_optimizer():
    """A model of FSDP2 and its optimizer, after a step."""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(torch.nn.Linear(8, 8), mesh=init_device_mesh("cpu", (2,)))
    optimizer = torch.optim.Adam(model.parameters())
    for p in model.parameters():  # torch 2.6 computes only on a GPU
        p.grad = torch.ones_like(p)
    optimizer.step()
    return model, optimizer


@case("torch")
def torch_fsdp2(out):
    def work(rank, out):
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict

        model, optimizer = sharded_model_and_optimizer()
        for step in (500, 1000):
            parts = get_state_dict(model, optimizer)
            dcp.save({"model": parts[0], "optim": parts[1]}, checkpoint_id=f"{out}/step-{step}")
            dist.barrier()
            if rank == 0:
                mark(f"step-{step}")
            dist.barrier()
    ranks(work, out)


@case("safetensors", "torch")
def safetensors(out):
    import torch
    from safetensors.torch import save_file

    for step in (500, 1000):
        save_file({"a": torch.ones(16), "b": torch.zeros(4, 4)}, f"{out}/model-{step}.safetensors")
        mark(f"model-{step}.safetensors")


@case("huggingface_hub", "torch", "safetensors")
def safetensors_sharded(out):
    import torch
    from huggingface_hub import save_torch_state_dict

    for step in (500, 1000):
        os.mkdir(f"{out}/step-{step}")
        save_torch_state_dict({f"w{i}": torch.ones(16) * i for i in range(6)}, f"{out}/step-{step}", max_shard_size=128)
        mark(f"step-{step}")


def plain_random_states():
    """Makes the random states that a checkpoint holds zeros, which a fixture compresses."""
    import random

    import numpy as np
    import torch

    random.setstate((3, (0,) * 624 + (624,), None))
    np.random.set_state(("MT19937", np.zeros(624, np.uint32), 624))
    state = torch.get_rng_state()
    state[24:24 + 624 * 8] = 0  # the words of its generator
    torch.set_rng_state(state)


def tiny_trainer(out, max_steps=4, **more):
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    class Marks(TrainerCallback):
        def on_train_begin(self, *_, **__):
            plain_random_states()

        def on_save(self, args, state, control, **_):
            mark(f"checkpoint-{state.global_step}")

    torch.manual_seed(1)
    model = BertForSequenceClassification(BertConfig(vocab_size=4, hidden_size=2, num_hidden_layers=1, num_attention_heads=1, intermediate_size=2, max_position_embeddings=2))
    model.bert.requires_grad_(False)  # fewer states of the optimizer
    data = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor(0)} for _ in range(64)]
    args = TrainingArguments(out, max_steps=max_steps, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False, **more)
    return Trainer(model, args, train_dataset=data, callbacks=[Marks()])


@case("transformers", "torch", "safetensors", "accelerate")
def trainer(out):
    tiny_trainer(out, save_steps=2).train()


@case("transformers", "torch", "safetensors", "accelerate")
def trainer_keeps_one(out):
    tiny_trainer(out, save_steps=1, save_total_limit=1).train()


@case("transformers", "torch", "safetensors", "accelerate")
def trainer_just_in_time(out):
    from transformers import TrainerCallback

    class Ends(TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                time.sleep(4)  # longer than transformers waits for a second signal

    t = tiny_trainer(out, save_steps=100, enable_jit_checkpoint=True)
    t.add_callback(Ends())
    try:
        t.train()
    except SystemExit:
        pass
    for name in sorted(os.listdir(out)):
        if name.startswith("checkpoint-"):  # stager keeps a directory of its own there
            mark(name)


@case("accelerate", "torch", "safetensors")
def accelerate(out):
    from accelerate import Accelerator

    a = Accelerator(cpu=True)
    model, optimizer = model_and_optimizer()
    a.prepare(model, optimizer)
    plain_random_states()
    for step in (500, 1000):
        a.save_state(f"{out}/checkpoint-{step}")
        mark(f"checkpoint-{step}")


@case("peft", "torch", "safetensors")
def peft(out):
    import torch
    from peft import LoraConfig, get_peft_model

    model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), LoraConfig(r=1, target_modules=["0"]))
    for step in (500, 1000):
        model.save_pretrained(f"{out}/step-{step}")
        mark(f"step-{step}")


def tiny_lightning():
    import lightning as L
    import torch

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.w(batch[0]).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Net(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=1)


@case("lightning", "torch")
def lightning(out):
    from lightning.pytorch.callbacks import ModelCheckpoint

    class Saves(ModelCheckpoint):
        def _save_checkpoint(self, trainer, filepath):
            super()._save_checkpoint(trainer, filepath)
            mark(os.path.relpath(filepath, out))

    fit_tiny_lightning(Saves(out, filename="{step}", every_n_train_steps=2, save_top_k=-1))


def fit_tiny_lightning(saves):
    import lightning as L

    net, data = tiny_lightning()
    L.Trainer(max_steps=4, accelerator="cpu", devices=1, callbacks=[saves], logger=False, enable_progress_bar=False, enable_model_summary=False).fit(net, data)


@case("nemo_toolkit", "lightning", "torch")
def nemo(out):
    from nemo.utils.callbacks.nemo_model_checkpoint import NeMoModelCheckpoint

    class Saves(NeMoModelCheckpoint):
        def _save_checkpoint(self, trainer, filepath):
            super()._save_checkpoint(trainer, filepath)
            mark(os.path.relpath(filepath, out))

    fit_tiny_lightning(Saves(dirpath=out, filename="net--{step}", every_n_train_steps=2, save_top_k=-1, save_nemo_on_train_end=False))


@case("orbax-checkpoint", "jax")
def orbax(out):
    import numpy as np
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(out, options=ocp.CheckpointManagerOptions(max_to_keep=1)) as m:
        for step in (500, 1000):
            m.save(step, args=ocp.args.StandardSave({"w": np.ones((4, 4), np.float32)}))
            m.wait_until_finished()
            mark(str(step))


@case("flax", "orbax-checkpoint", "jax")
def flax(out):
    import numpy as np
    from flax import config
    from flax.training import checkpoints

    for orbax_too in (False, True):
        config.update("flax_use_orbax_checkpointing", orbax_too)
        for step in (500, 1000):
            checkpoints.save_checkpoint(out, {"w": np.ones((4, 4), np.float32)}, step + orbax_too, keep=4, prefix="checkpoint_")
            mark(f"checkpoint_{step + orbax_too}")


def tiny_keras():
    import keras

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    return model


@case("keras", "tensorflow_cpu", "h5py")
def keras(out):
    model = tiny_keras()
    for step in (500, 1000):
        model.save(f"{out}/model-{step}.keras")
        mark(f"model-{step}.keras")
        model.save_weights(f"{out}/model-{step + 1}.weights.h5")
        mark(f"model-{step + 1}.weights.h5")


@case("keras", "tensorflow_cpu", "h5py")
def keras_backup(out):
    import keras
    import numpy as np

    class Marks(keras.callbacks.BackupAndRestore):
        def _save_model(self, *args, **kw):
            super()._save_model(*args, **kw)
            mark("backup")

    tiny_keras().fit(np.ones((4, 2)), np.ones((4, 2)), epochs=2, verbose=0, callbacks=[Marks(out + "/backup", delete_checkpoint=False)])


@case("tensorflow_cpu")
def tensorflow(out):
    import tensorflow as tf

    checkpoint = tf.train.Checkpoint(v=tf.Variable(tf.ones((4, 4))))
    manager = tf.train.CheckpointManager(checkpoint, out, max_to_keep=3)
    for step in (500, 1000):
        manager.save(checkpoint_number=step)
        mark(f"ckpt-{step}")


@case("numpy")
def numpy(out):
    import numpy as np

    for step in (500, 1000):
        np.savez(f"{out}/state-{step}.npz", a=np.ones(32), b=np.zeros((3, 3)))
        mark(f"state-{step}.npz")
    for step in (1500, 2000):
        os.mkdir(f"{out}/step-{step}")
        np.save(f"{out}/step-{step}/a.npy", np.ones(64))
        np.save(f"{out}/step-{step}/b.npy", np.ones((2, 2), np.int8))
        mark(f"step-{step}")


@case("joblib", "scikit-learn", "numpy")
def joblib(out):
    import joblib as lib
    import numpy as np
    from sklearn.linear_model import SGDClassifier

    model = SGDClassifier().fit(np.eye(4), [0, 1, 0, 1])
    for step in (500, 1000):
        os.mkdir(f"{out}/step-{step}")
        lib.dump(model, f"{out}/step-{step}/model.joblib")
        lib.dump({"rounds": step, "a": np.ones(64)}, f"{out}/step-{step}/state.joblib.gz")
        mark(f"step-{step}")


@case("xgboost-cpu|xgboost")
def xgboost(out):
    import numpy as np
    import xgboost as xgb

    model = xgb.train({"max_depth": 2}, xgb.DMatrix(np.eye(4), label=[0, 1, 0, 1]), num_boost_round=2)
    for step in (500, 1000):
        os.mkdir(f"{out}/step-{step}")
        model.save_model(f"{out}/step-{step}/model.ubj")
        model.save_model(f"{out}/step-{step}/model.json")
        mark(f"step-{step}")


def zero_engine(model, stage):
    """DeepSpeed's engine of a model, in one process."""
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "DS_ACCELERATOR": "cpu"}.items():
        os.environ[name] = value
    import deepspeed as ds
    from deepspeed.accelerator import get_accelerator

    cpu = get_accelerator()
    cpu._communication_backend_name = "gloo"  # there is no oneCCL
    cpu.current_stream = lambda *_: type("Stream", (), {"synchronize": lambda _: None})()  # 0.12 has none on a CPU
    zero = {"stage": stage, "reduce_scatter": False}  # the gloo of torch 2.1 has no reduce_scatter
    config = {"train_batch_size": 1, "optimizer": {"type": "Adam", "params": {"torch_adam": True}}, "zero_optimization": zero}
    return ds.initialize(model=model, model_parameters=model.parameters(), config=config)[0]


@case("deepspeed", "torch")
def deepspeed(out):
    model, _ = model_and_optimizer()
    for stage in (1, 2, 3):
        engine = zero_engine(model, stage)
        for step in (500, 1000):
            engine.save_checkpoint(out, tag=f"global_step{1000 * stage + step}")
            mark(f"global_step{1000 * stage + step}")


@case("megatron-core", "torch")
def megatron_core(out):
    def work(rank, out):
        import torch
        import torch.distributed as dist
        from megatron.core import dist_checkpointing as checkpointing

        torch.cuda.synchronize, torch.cuda.current_device = lambda *_: None, lambda: "cpu"  # there is no GPU
        for step in (500, 1000):
            to = f"{out}/iter_{step:07d}"
            if rank == 0:
                os.mkdir(to)
            dist.barrier()
            shard = checkpointing.ShardedTensor.from_rank_offsets("w", torch.ones(4, 8) * rank, (0, rank, 2), replica_id=0)
            checkpointing.save({"w": shard, "iteration": step}, to)
            dist.barrier()
            if rank == 0:  # as Megatron-LM's training loop does
                with open(f"{out}/latest_checkpointed_iteration.txt", "w") as f:
                    f.write(str(step))
                mark(f"iter_{step:07d}")
            dist.barrier()
    ranks(work, out)


@case("ray", "torch")
def ray_train(out):
    def loop(config):
        import torch
        from ray import train

        model, _ = model_and_optimizer()
        for epoch in (1, 2):
            with tempfile.TemporaryDirectory() as local:
                torch.save(model.state_dict(), f"{local}/model.pt")
                torch.save({"epoch": epoch}, f"{local}/state.pt")
                train.report({"loss": 1 / epoch}, checkpoint=train.Checkpoint.from_directory(local))
            newest = max(name for name in os.listdir(config["to"]) if re.match(r"checkpoint_\d", name))  # not the snapshot
            snapshot = config["to"] + "/checkpoint_manager_snapshot.json"
            while config["snapshot"] and (not os.path.exists(snapshot) or newest not in open(snapshot).read()):  # report returns before
                time.sleep(0.05)
            mark(newest)

    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    top, name = os.path.split(out)
    second = ".v2." in TorchTrainer.__module__  # the first one saves into the directories of trials
    t = TorchTrainer(loop, train_loop_config={"to": out, "snapshot": second}, scaling_config=ScalingConfig(num_workers=1),
                     run_config=RunConfig(storage_path=top, name=name))
    if not second:
        from ray.tune import TuneConfig, Tuner

        of_trials, run = os.path.split(top)
        t = Tuner(t, tune_config=TuneConfig(trial_dirname_creator=lambda _: name), run_config=RunConfig(storage_path=of_trials, name=run))
    t.fit()


# A call as strace tells it: "1234 1.5 write(5</out/x>, "\x41", 1) = 1".
LINE = re.compile(r"^(\d+) +([\d.]+) +(\w+)\((.*)\) += (-?\d+)(?:<.*>| E.*)?")
STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
FD = re.compile(r"^(\d+|AT_FDCWD)<((?:[^>\\]|\\.)*)>")


def unquote(text):
    return re.sub(rb"\\x([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), text.encode())


def calls(log):
    """The whole calls of a log, each where it ended."""
    begun = {}
    for line in log:
        pid = line.split(" ", 1)[0]
        line = line.rstrip("\n")
        if line.endswith("<unfinished ...>"):
            begun[pid] = line[: -len("<unfinished ...>")].rstrip()
            continue
        if resumed := re.match(r"^\d+ +[\d.]+ +<\.\.\. \w+ resumed>(.*)$", line):
            line = begun.pop(pid, "") + resumed[1]
        if m := LINE.match(line):
            yield float(m[2]), m[3], m[4], int(m[5])


class Recorder:
    """Turns calls into operations, and keeps what the directory holds after each."""

    def __init__(self, out):
        self.out, self.files, self.dirs = out, {}, set()
        self.ends, self.writers = {}, {}

    def inside(self, path):
        path = os.path.normpath(path.removesuffix(" (deleted)"))
        return os.path.relpath(path, self.out) if path.startswith(os.path.dirname(self.out) + "/") and path != self.out else None

    def paths(self, args):
        dirs, found = re.findall(r"(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>", args), STRING.findall(args)
        at = [unquote(d).decode() for d in dirs] or [os.getcwd()]
        return [os.path.join(at[min(i, len(at) - 1)], unquote(f).decode()) for i, f in enumerate(found)]

    def write(self, path, off, data):
        old = self.files.get(path, b"")
        self.files[path] = old[:off].ljust(off, b"\0") + data + old[off + len(data):]
        return {"op": "write", "path": path, "off": off, "data": data}

    def named(self, call, args, result):
        if call in ("openat", "creat", "open"):
            path = self.inside(self.paths(args)[0])
            if path and result >= 0 and (call == "creat" or re.search("O_(WRONLY|RDWR|CREAT|TRUNC)", args)) and "O_DIRECTORY" not in args:
                self.ends[path, result] = 0
                self.writers[result] = self.writers.get(result, 0) + 1
                truncate = "O_TRUNC" in args or call == "creat"
                if truncate or path not in self.files:
                    self.files[path] = b""
                yield {"op": "create", "path": path, "truncate": truncate}
        elif call in ("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat"):
            full = self.paths(args)[0]
            if full.startswith(MARK):
                yield {"op": "mark", "path": full.removeprefix(MARK)}
            elif (path := self.inside(full)) and result >= 0:
                self.files.pop(path, None)
                yield {"op": "mkdir" if call.startswith("mkdir") else "remove", "path": path}
        elif call in ("rename", "renameat", "renameat2", "link", "linkat"):
            was, now = (self.inside(p) for p in self.paths(args)[:2])
            if now and result >= 0:
                assert was, ("came from elsewhere", now)
                for p in [p for p in self.files if p == was or p.startswith(was + "/")]:
                    self.files[now + p[len(was):]] = self.files[p] if call.startswith("link") else self.files.pop(p)
                yield {"op": "link" if call.startswith("link") else "rename", "path": was, "to": now}

    def opened(self, call, args, result, end):
        m = FD.match(args)
        path, fd = m and self.inside(unquote(m[2]).decode()), m and int(m[1]) if m and m[1] != "AT_FDCWD" else None
        if not path or result < 0:
            return
        if call == "close":
            if self.writers.get(fd):
                self.writers[fd] -= 1
                yield {"op": "close", "path": path}
        elif call in ("fsync", "fdatasync"):
            yield {"op": "fsync", "path": path}
        elif call == "lseek":
            self.ends[path, fd] = result
        elif call in ("write", "writev", "pwrite64", "pwritev", "pwritev2"):
            data = b"".join(unquote(s) for s in STRING.findall(args[m.end():]))[:result]
            assert len(data) == result, (call, path, result, len(data))
            place = not call.startswith("w")
            off = int(args.split(", ")[-2 if call == "pwritev2" else -1], 0) if place else self.ends.get((path, fd), 0)
            if not place:
                self.ends[path, fd] = off + result
            yield self.write(path, off, data)
        elif call in ("sendfile", "copy_file_range"):
            with open(os.path.join(self.out, path), "rb") as f:  # the source is elsewhere
                data = f.read()
            if self.files.get(path) != data:
                yield self.write(path, 0, data)
        elif call == "ftruncate":
            size = int(args.rsplit(", ", 1)[1])
            self.files[path] = self.files.get(path, b"")[:size].ljust(size, b"\0")
            yield {"op": "truncate", "path": path, "size": size}
        elif call == "fallocate":
            yield {"op": "truncate", "path": path, "size": max(len(self.files.get(path, b"")), end)}

    def operations(self, log):
        first = None
        for at, call, args, result in calls(log):
            found = self.named(call, args, result)
            if call not in ("openat", "creat", "open", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat"):
                numbers = re.findall(r"-?\d+", args.rsplit("]", 1)[-1])
                found = self.opened(call, args, result, sum(map(int, numbers[-2:])) if call == "fallocate" else 0)
            for op in found:
                if op["path"].startswith("../"):  # a temporary file elsewhere
                    if op.get("to", "../").startswith("../"):
                        continue
                    op = {"op": "arrive", "path": op["to"], "data": base64.b64encode(self.files[op["to"]]).decode()}
                first = at if first is None else first
                yield {**op, "t": round(at - first, 3)}


def merged(ops):
    """Writes that follow one another in a file become two: the first half and the rest."""
    runs = []
    for op in ops:
        last = runs[-1] if runs else None
        if op["op"] == "write" and last and last["op"] == "write" and last["path"] == op["path"] and last["off"] + len(last["data"]) == op["off"]:
            last["data"] += op["data"]
        else:
            runs.append(op)
    for op in runs:
        if op["op"] != "write":
            yield op
            continue
        half = len(op["data"]) // 2
        for off, data in ((0, op["data"][:half]), (half, op["data"][half:])):
            if data:
                yield {**op, "off": op["off"] + off, "data": base64.b64encode(data).decode()}


def blanked(ops):
    """Sources that a library copies beside its checkpoints keep their size, not their text."""
    for op in ops:
        if "data" in op and op["path"].endswith(".py"):
            op["data"] = base64.b64encode(b"\n" * len(base64.b64decode(op["data"]))).decode()
        yield op


def write_fixture(to, lines):
    text = "\n".join(map(json.dumps, lines)) + "\n"
    with open(to, "wb") as f:
        f.write(bz2.compress(text.encode()))


def record(name):
    versions = {}
    for package in CASES[name][1]:
        found, number = version(package)
        if not found:
            print(f"{name}: there is no {package} in this Python", flush=True)
            return
        versions[found] = number
    with tempfile.TemporaryDirectory() as top:
        out, log = os.path.join(os.path.realpath(top), "out"), os.path.join(top, "log")
        os.mkdir(out)
        os.mkdir(os.path.join(top, "tmp"))
        done = subprocess.run(["strace", "-f", "-y", "-xx", "-ttt", "-s", "100000000", "-e", "trace=" + CALLS, "-o", log, sys.executable, __file__, "--write", name, out],
                              capture_output=True, text=True, timeout=300, env={**os.environ, "TMPDIR": os.path.join(os.path.realpath(top), "tmp")})
        recorder = Recorder(out)
        with open(log, errors="replace") as lines:
            ops = list(merged(recorder.operations(lines)))
        if not any(op["op"] == "mark" for op in ops):
            print(f"{name}: nothing was saved: {done.stderr[-1500:]}", flush=True)
            return
        while ops[-1]["op"] != "mark":  # what follows belongs to no checkpoint
            ops.pop()
        inside = {path: data for path, data in recorder.files.items() if not path.startswith("../")}
        for path, data in inside.items():  # the calls, replayed, must give what lies there
            with open(os.path.join(out, path), "rb") as f:
                assert f.read() == data, f"{name}: {path} is not what the calls give"
        to = os.path.join(HERE, f"{name}-{version(CASES[name][1][0])[1]}.jsonl.bz2")
        write_fixture(to, [{"op": "versions", "versions": versions}, *blanked(ops)])
        print(f"{name}: {len(ops)} operations, {os.path.getsize(to)} bytes, {versions}", flush=True)


def install(venv, packages):
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([os.path.join(venv, "bin/pip"), "install", "-q", *[p.replace("=", "==", 1) if "==" not in p else p for p in packages]], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        CASES[sys.argv[2]][0](sys.argv[3])
    elif sys.argv[1:2] == ["--install"]:
        install(sys.argv[2], sys.argv[3:])
    else:
        os.makedirs(HERE, exist_ok=True)
        for name in sys.argv[1:] or CASES:
            try:
                record(name)
            except Exception as e:  # the other cases still can be recorded
                print(f"{name}: {type(e).__name__}: {e}", flush=True)
