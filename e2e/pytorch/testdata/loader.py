"""Trains, in name only, on every sample of a window by a loader of stager, and resumes where its state stood.

    loader.py STATE EPOCHS WORKERS SHUFFLE KIND           through the window of $STAGER_SOCKET; KIND is one of KINDS
    loader.py USED EPOCHS WORKERS SHUFFLE KIND OUT SAVE   the same without a state: what counts is what restore --rewind says

Each line of standard input is a kill, WHAT@N or WHAT@N+MS: a trainer in a process of its own, or the last of its workers, gets a
SIGKILL when N samples of this run were used, MS milliseconds later; stager@N prints "stager", for whoever kills that. Then "ended
WHAT@N CODE" is printed. At the end of the input a trainer runs to the end of all epochs, and prints the samples that were used in each.

STATE is a file that is replaced every few batches: the samples that were used, in order, and where the data stood. USED gets a
line "EPOCH NUMBER" for each sample; after SAVE samples, unless that is 0, OUT/step-1 is committed, and USED gets a line "saved".
"""

import importlib
import json
import os
import signal
import sys
import threading
import traceback

import stager

path, epochs, workers, shuffle, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
BATCH, EVERY = 16, 3
OPTIONS = {}  # of each input
AFTER = {"worker": 400, "stager": 64}  # samples after which a trainer gets a SIGKILL, if it lives: a worker may have had nothing more to do


def number(sample):
    return {"number": int(sample["__key__"])}


def tensors(sample):
    import torch

    return torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 16, int(sample["cls"]), int(sample["__key__"])


def decoded(sample):
    import torch

    return torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 16, sample["cls"], int(sample["__key__"])


def read(shard):
    import webdataset as wds

    return wds.DataPipeline(lambda: iter([{"url": shard}]), wds.tarfile_to_samples(), wds.map(tensors))


def loader(dataset, **options):
    return stager.torch.loader(dataset, batch_size=BATCH, num_workers=workers, **options), lambda batch: batch[2].tolist()


def samples(**options):
    return loader(stager.torch.SampleDataset("train", decode=tensors, shuffle=shuffle, seed=5, **OPTIONS), **options)


def stateful():
    from torchdata.stateful_dataloader import StatefulDataLoader

    return samples(cls=StatefulDataLoader)


def shards():
    return loader(stager.torch.ShardDataset("train", read, **OPTIONS))


def webdataset():
    return loader(stager.webdataset("train", **OPTIONS).shuffle(shuffle, seed=5).decode().map(decoded))


def hf():
    data, _ = loader(stager.hf.dataset("train", **OPTIONS).map(number, remove_columns=["bin", "cls", "__key__"]))
    return data, lambda batch: batch["number"].tolist()


def batches():
    return stager.batches("train", BATCH, decode=number, shuffle=shuffle, seed=5, **OPTIONS), lambda batch: [sample["number"] for sample in batch]


def tf():
    import tensorflow

    data = stager.tf.dataset("train", {"number": tensorflow.TensorSpec((), tensorflow.int64)}, decode=number, shuffle=shuffle, seed=5, **OPTIONS)
    return data.batch(BATCH).prefetch(4), lambda batch: batch["number"].numpy().tolist()


def grain():
    return stager.grain.loader("train", lambda of: of.map(number).batch(BATCH), shuffle=shuffle, seed=5, **OPTIONS), lambda batch: batch["number"].tolist()


def ray():
    return stager.ray.dataset("train", decode=number, shuffle=shuffle, seed=5, **OPTIONS), lambda batch: batch["number"].tolist()


# What makes a loader and a function that returns the numbers of a batch's samples, and what is imported once for all trainers.
KINDS = {
    "samples": (samples, "stager.torch"),
    "stateful": (stateful, "stager.torch", "torchdata.stateful_dataloader"),
    "shards": (shards, "stager.torch", "webdataset"),
    "webdataset": (webdataset, "stager.torch", "webdataset"),
    "hf": (hf, "stager.hf", "stager.torch", "datasets"),
    "batches": (batches,),
    "tf": (tf, "stager.tf"),
    "grain": (grain, "stager.grain"),
    "ray": (ray, "stager.ray"),
}


def last_child():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return int(file.read().split()[-1])


def passing(data):
    return data.iter_batches(batch_size=BATCH) if kind == "ray" else data


def strike(what, late):
    if what == "stager":
        print("stager", flush=True)
        return
    threading.Timer(late, os.kill, (last_child() if what == "worker" else os.getpid(), signal.SIGKILL)).start()


def train(kill=""):
    what, _, when = kill.partition("@")
    at, _, late = when.partition("+")
    data, numbers = KINDS[kind][0]()
    used = []  # of each epoch
    if os.path.exists(path):
        with open(path) as file:
            saved = json.load(file)
        used = saved["used"]
        data.load_state_dict(saved["data"])
        assert data.samples_seen == sum(map(len, used)), (data.samples_seen, sum(map(len, used)))
    run, last = 0, None
    for epoch in range(data.epoch, epochs):
        used += [[] for _ in range(epoch + 1 - len(used))]
        for step, batch in enumerate(passing(data)):
            used[epoch] += numbers(batch)
            run += len(numbers(batch))
            if what and run >= int(at):
                strike(what, int(late or 0) / 1000)
                what, last = "", run + AFTER.get(what, 10**9)
            if last is not None and run >= last:
                os.kill(os.getpid(), signal.SIGKILL)
            if step % EVERY == EVERY - 1:
                with open(path + ".new", "w") as file:
                    json.dump({"used": used, "data": data.state_dict()}, file)
                os.rename(path + ".new", path)
    return used


def rewound(out, save, what):
    """A trainer that keeps no position of its own, and is killed after WHAT@N samples."""
    data, numbers = KINDS[kind][0]()
    kill, run = int(what.partition("@")[2] or 0), 0
    with open(path, "a") as used:
        for epoch in range(data.epoch, epochs):
            for batch in data:
                used.writelines(f"{epoch} {n}\n" for n in numbers(batch))
                used.flush()
                run += len(numbers(batch))
                if save and run >= save:
                    os.mkdir(f"{out}/step-1")
                    with open(f"{out}/step-1/model.safetensors", "w") as model:
                        model.write("weights")
                    assert stager.commit("ckpt", f"{out}/step-1", samples_seen=data.samples_seen, wait=60)
                    used.write("saved\n")
                    save = 0
                if kill and run >= kill:
                    used.flush()
                    os.kill(os.getpid(), signal.SIGKILL)


def main():
    for module in KINDS[kind][1:]:
        importlib.import_module(module)
    out, save = (sys.argv[6], int(sys.argv[7])) if len(sys.argv) > 6 else ("", 0)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                rewound(out, save, line.strip()) if out else train(line.strip())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        print("ended", line.strip(), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    if not out:
        print(json.dumps(train()))


if __name__ == "__main__":
    main()
