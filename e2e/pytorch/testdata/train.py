"""Trains a small network on shards of digits and prints what became of it, as JSON.

    train.py EPOCHS RECORD                 through the window of $STAGER_SOCKET; notes in
                                           RECORD which worker got which shards
    train.py EPOCHS RECORD --from FOLDER   the same shards in the same order, from a folder
"""

import functools
import hashlib
import json
import os
import sys

import torch
import webdataset as wds

from stager_window import shards

epochs, record = int(sys.argv[1]), sys.argv[2]
folder = sys.argv[4] if len(sys.argv) > 3 else None


class Source(torch.utils.data.IterableDataset):
    """The shards of one worker, in one epoch, as WebDataset wants them."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        notes = os.path.join(record, f"{self.epoch}-{worker}")
        if folder is not None:
            with open(notes) as f:
                for line in f:
                    yield {"url": os.path.join(folder, line.strip())}
            return
        with open(notes, "w") as f:
            for path in shards("train", epoch=self.epoch):
                print(os.path.basename(path).split("-", 2)[2], file=f, flush=True)
                yield {"url": path}


def decode(sample):
    pixels = torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 16
    return pixels, int(sample["cls"]), int(sample["__key__"])


torch.manual_seed(1)
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
losses, seen = [], []
for epoch in range(epochs):
    pipeline = wds.DataPipeline(Source(epoch), wds.tarfile_to_samples(), wds.map(decode))
    loader = torch.utils.data.DataLoader(pipeline, batch_size=32, num_workers=4)
    keys = []
    for pixels, labels, numbers in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(pixels), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        keys += numbers.tolist()
    seen.append(keys)
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in network.parameters())).hexdigest()
json.dump({"losses": losses, "seen": seen, "weights": weights}, sys.stdout)
