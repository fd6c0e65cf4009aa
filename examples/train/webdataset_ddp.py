"""Trains on tar shards of WebDataset with DDP, and resumes at the newest checkpoint.

    torchrun --nproc_per_node 2 --max_restarts 9 webdataset_ddp.py /newest

Ranks may have different numbers of samples: one that has no more adds nothing to the gradient until all have no more.
"""

import json
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

import stager.torch

EPOCHS, EVERY, NEWEST = 2, 10, sys.argv[1]  # saves every 10 steps; checkpoints are restored to NEWEST


def sample(s):
    return torch.frombuffer(bytearray(s["bin"]), dtype=torch.uint8).float() / 16, s["cls"], int(s["__key__"])


def steps(data):
    """Yields batches with the number of samples of all ranks, until no rank has any."""
    none, batches = (torch.zeros(0, 64), torch.zeros(0, dtype=torch.long), torch.zeros(0)), iter(data)
    while True:
        batch = next(batches, none)
        total = torch.tensor(len(batch[1]))
        dist.all_reduce(total)
        if total == 0:
            return
        yield *batch, total.item()


dist.init_process_group("gloo")
rank, ranks, step = dist.get_rank(), dist.get_world_size(), 0
torch.manual_seed(1)
network = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
data = stager.torch.loader(stager.webdataset("train").decode().map(sample), batch_size=16, num_workers=1)
if rank == 0:
    stager.Checkpoint().restore(NEWEST, rewind=False)
dist.barrier()
if os.path.exists(f"{NEWEST}/train.pt"):
    model, optim, step, states = torch.load(f"{NEWEST}/train.pt")
    network.load_state_dict(model), optimizer.load_state_dict(optim), data.load_state_dict(states)
dist.barrier()  # a load ends the leases of all
for _ in range(data.epoch, EPOCHS):
    for pixels, labels, keys, total in steps(data):
        loss = cross_entropy(network(pixels), labels, reduction="sum") * ranks / total  # DDP divides by ranks
        optimizer.zero_grad(), loss.backward(), optimizer.step()
        step += 1
        print(json.dumps({"rank": rank, "step": step, "loss": loss.item() / ranks, "samples": keys.tolist()}), flush=True)
        if step % EVERY == 0:
            dist.all_gather_object(states := [None] * ranks, data.state_dict())
            if rank == 0:
                with stager.checkpoint(step) as directory:
                    torch.save((network.state_dict(), optimizer.state_dict(), step, states), f"{directory}/train.pt")
