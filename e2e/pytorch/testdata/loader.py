"""Trains, in name only, on every sample of a window by stager's loader, and resumes where its state stood.

    loader.py STATE EPOCHS WORKERS SHUFFLE DATASET [KILL]    through the window of $STAGER_SOCKET; DATASET is samples, shards, webdataset,
                                                             or stateful: samples with torchdata's StatefulDataLoader

STATE is a file that is replaced every few batches: the samples that were used, in order, and where the data stood.
KILL is worker@N or trainer@N: what gets a SIGKILL when N samples of this run were used.
"""

import json
import os
import signal
import sys

import torch
import webdataset as wds

import stager
from stager.torch import SampleDataset, ShardDataset, loader

path, epochs, workers, shuffle, kind = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
what, _, when = sys.argv[6].partition("@") if len(sys.argv) > 6 else ("", "", "0")


def decode(sample):
    return torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 16, int(sample["cls"]), int(sample["__key__"])


def read(shard):
    return wds.DataPipeline(lambda: iter([{"url": shard}]), wds.tarfile_to_samples(), wds.map(decode))


def tensors(sample):
    return torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 16, sample["cls"], int(sample["__key__"])


def main():
    if kind == "shards":
        dataset = ShardDataset("train", read)
    elif kind == "webdataset":
        dataset = stager.webdataset("train").shuffle(shuffle, seed=5).decode().map(tensors)
    else:
        dataset = SampleDataset("train", decode=decode, shuffle=shuffle, seed=5)
    more = {}
    if kind == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader

        more["cls"] = StatefulDataLoader
    data = loader(dataset, batch_size=16, num_workers=workers, **more)
    used = []  # of each epoch
    if os.path.exists(path):
        with open(path) as file:
            saved = json.load(file)
        used = saved["used"]
        data.load_state_dict(saved["data"])
        assert data.samples_seen == sum(map(len, used)), (data.samples_seen, sum(map(len, used)))
    run = 0
    for epoch in range(data.epoch, epochs):
        used += [[] for _ in range(epoch + 1 - len(used))]
        for step, (_, _, numbers) in enumerate(data):
            used[epoch] += numbers.tolist()
            run += len(numbers)
            if what == "trainer" and run >= int(when):
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "worker" and run >= int(when):
                with open(f"/proc/self/task/{os.getpid()}/children") as file:
                    os.kill(int(file.read().split()[-1]), signal.SIGKILL)
            if step % 5 == 4:
                with open(path + ".new", "w") as file:
                    json.dump({"used": used, "data": data.state_dict()}, file)
                os.rename(path + ".new", path)
    print(json.dumps(used))


if __name__ == "__main__":
    main()
