"""Records how libraries write checkpoints: python3 record.py NAME...

Each case below saves small checkpoints with the real library into a folder, under
strace, and becomes NAME.jsonl: what was done to that folder, in order, one call a
line. The tests replay it call by call. Cases whose library cannot be had are left
out.
"""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CALLS = "openat,creat,open,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,write,pwrite64,writev,pwritev,ftruncate,link,linkat,symlink,symlinkat,sendfile,copy_file_range,lseek"


def torch_save(out):
    import torch

    model = torch.nn.Linear(8, 8)
    for step in (500, 1000):
        torch.save({"model": model.state_dict(), "step": step}, f"{out}/model-{step}.pt")


def torch_dcp(out):
    import dataclasses

    plain = dataclasses.dataclass

    def hashable(cls=None, /, **kw):  # as this release of torch expects, and Python 3.11 insists on
        if cls is None:
            return lambda cls: hashable(cls, **kw)
        return plain(cls, **{"unsafe_hash": "__hash__" not in vars(cls), **kw})

    dataclasses.dataclass = hashable
    try:
        import torch.distributed.checkpoint as dcp
    except ImportError:
        import torch.distributed._shard.checkpoint as dcp
    dataclasses.dataclass = plain
    import torch

    for step in (500, 1000):
        os.mkdir(f"{out}/step-{step}")
        dcp.save_state_dict({"w": torch.ones(8, 8), "b": torch.zeros(8)}, dcp.FileSystemWriter(f"{out}/step-{step}", single_file_per_rank=False), no_dist=True)


def trainer(out):
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    model = BertForSequenceClassification(BertConfig(vocab_size=10, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8, max_position_embeddings=8))
    data = [{"input_ids": torch.tensor([1, 2]), "labels": torch.tensor(0)} for _ in range(8)]
    args = TrainingArguments(out, max_steps=4, save_steps=2, per_device_train_batch_size=2, report_to=[], disable_tqdm=True, use_cpu=True)
    Trainer(model, args, train_dataset=data).train()


def accelerate(out):
    import torch
    from accelerate import Accelerator

    a = Accelerator(cpu=True)
    model = torch.nn.Linear(4, 4)
    parts = a.prepare(model, torch.optim.Adam(model.parameters()))
    parts[0](torch.ones(4)).sum().backward()
    parts[1].step()
    for step in (500, 1000):
        a.save_state(f"{out}/checkpoint-{step}")


def tensorflow(out):
    import tensorflow as tf

    ckpt = tf.train.Checkpoint(v=tf.Variable(tf.ones((4, 4))))
    manager = tf.train.CheckpointManager(ckpt, out, max_to_keep=1)
    for step in (500, 1000):
        manager.save(checkpoint_number=step)


def orbax(out):
    import numpy as np
    import orbax.checkpoint as ocp

    with ocp.CheckpointManager(out, options=ocp.CheckpointManagerOptions(max_to_keep=1)) as m:
        for step in (500, 1000):
            m.save(step, args=ocp.args.StandardSave({"w": np.ones((4, 4), np.float32)}))
            m.wait_until_finished()


# A call as strace tells it: "1234 write(5</out/x>, "\x41", 1) = 1".
LINE = re.compile(r"^(\d+) +(\w+)\((.*)\) += (-?\d+)(?:<.*>)?")
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
        resumed = re.match(r"^\d+ +<\.\.\. \w+ resumed>(.*)$", line)
        if resumed:
            line = begun.pop(pid, "") + resumed[1]
        if m := LINE.match(line):
            if int(m[4]) >= 0:
                yield m[2], m[3], int(m[4])


def operations(log, out):
    ends = {}  # where a descriptor stands, by path: libraries open a file once at a time

    def inside(path):
        path = os.path.normpath(path)
        return os.path.relpath(path, out) if path.startswith(out + "/") else None

    def paths(args):
        dirs, found = re.findall(r"(?:AT_FDCWD|\d+)<((?:[^>\\]|\\.)*)>", args), STRING.findall(args)
        at = [unquote(d).decode() for d in dirs] or [os.getcwd()]
        return [os.path.join(at[min(i, len(at) - 1)], unquote(f).decode()) for i, f in enumerate(found)]

    for call, args, result in calls(log):
        if call in ("openat", "creat", "open"):
            path = inside(paths(args)[0])
            if path and ("O_CREAT" in args or "O_TRUNC" in args or call == "creat"):
                ends[path] = 0
                yield {"op": "create", "path": path, "truncate": "O_TRUNC" in args or call == "creat"}
        elif call in ("mkdir", "mkdirat", "rmdir", "unlink", "unlinkat"):
            if path := inside(paths(args)[0]):
                yield {"op": "mkdir" if call.startswith("mkdir") else "remove", "path": path}
        elif call in ("rename", "renameat", "renameat2", "link", "linkat"):
            was, now = (inside(p) for p in paths(args)[:2])
            if was and now:
                yield {"op": call[:6].rstrip("at") if call.startswith("link") else "rename", "path": was, "to": now}
        elif m := FD.match(args):
            path = inside(unquote(m[2]).decode())
            if not path:
                continue
            if call == "lseek":
                ends[path] = result
            elif call in ("write", "writev", "pwrite64", "pwritev"):
                data = b"".join(unquote(s) for s in STRING.findall(args[m.end():]))[:result]
                assert len(data) == result, (call, path, result, len(data))
                off = int(args.rsplit(", ", 1)[1]) if call.startswith("p") else ends.get(path, 0)
                if not call.startswith("p"):
                    ends[path] = off + result
                yield {"op": "write", "path": path, "off": off, "data": data}
            elif call == "ftruncate":
                yield {"op": "truncate", "path": path, "size": int(args.rsplit(", ", 1)[1])}
            else:
                sys.exit(f"{call} is not understood")


def merged(ops):
    """Writes that follow one another in a file become two: its first half and the rest."""
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


def record(name):
    with tempfile.TemporaryDirectory() as top:
        out, log = os.path.join(os.path.realpath(top), "out"), os.path.join(top, "log")
        os.mkdir(out)
        subprocess.run(["strace", "-f", "-y", "-xx", "-s", "100000000", "-e", "trace=" + CALLS, "-o", log, sys.executable, __file__, "--write", name, out], check=True)
        with open(log, errors="replace") as lines, open(os.path.join(HERE, name + ".jsonl"), "w") as to:
            for op in merged(operations(lines, out)):
                to.write(json.dumps(op) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        globals()[sys.argv[2]](sys.argv[3])
    else:
        for name in sys.argv[1:]:
            record(name)
