"""Trains a small network on shards of digits and prints what became of it, as JSON.

    train.py EPOCHS RECORD                 through the window of $STAGER_SOCKET; notes in
                                           RECORD which worker got which shards
    train.py EPOCHS RECORD --from DIR   the same shards in the same order, from a directory

With --checkpoint FILE each epoch ends with a checkpoint, which knows where the data stood and
what was seen; a run that finds one goes on there. With --kill EPOCH whoever is given the shard
in the middle of that epoch is killed, and with it the run.
"""

import argparse

import hashlib
import json
import os
import signal
import sys

import torch
import webdataset as wds

from stager import cursor, shards

args = argparse.ArgumentParser()
args.add_argument("epochs", type=int)
args.add_argument("record")
args.add_argument("--from", dest="directory")
args.add_argument("--checkpoint")
args.add_argument("--kill", type=int)
args = args.parse_args()


class Source(torch.utils.data.IterableDataset):
    """The shards of one worker, in one epoch, as WebDataset wants them."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        worker = torch.utils.data.get_worker_info().id
        notes = os.path.join(args.record, f"{self.epoch}-{worker}")
        if args.directory is not None:
            with open(notes) as f:
                for line in f:
                    yield {"url": os.path.join(args.directory, line.strip())}
            return
        with open(notes, "w") as f:
            for path in shards("train", epoch=self.epoch, ack_lag=0):
                if self.epoch == args.kill and path.position == 20:
                    os.kill(os.getpid(), signal.SIGKILL)
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
if args.checkpoint and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint)
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    losses, seen = saved["losses"], saved["seen"]
    cursor("train", saved["cursor"])
for epoch in range(len(seen), args.epochs):
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
    if args.checkpoint:
        saved = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "losses": losses, "seen": seen}
        torch.save({**saved, "cursor": cursor("train")}, args.checkpoint + ".tmp")
        os.rename(args.checkpoint + ".tmp", args.checkpoint)
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in network.parameters())).hexdigest()
json.dump({"losses": losses, "seen": seen, "weights": weights}, sys.stdout)
