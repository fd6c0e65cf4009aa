"""Trains with torchdata's StatefulDataLoader and saves distributed checkpoints (DCP), and resumes at the newest one.

    python3 torch_dcp.py /out /newest

Run by torchrun, each rank saves its own part; see webdataset_ddp.py for the positions of several ranks.
"""

import json
import sys

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torchdata.stateful_dataloader import StatefulDataLoader

import stager.dcp
import stager.torch

EPOCHS, EVERY, OUT, NEWEST = 2, 10, sys.argv[1], sys.argv[2]


def decode(s):
    return torch.frombuffer(bytearray(s["bin"]), dtype=torch.uint8).float() / 16, int(s["cls"]), int(s["__key__"])


def main():
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    data = stager.torch.loader(stager.torch.SampleDataset("train", decode=decode), cls=StatefulDataLoader, batch_size=16, num_workers=2)
    step = 0

    def state():
        model, optim = get_state_dict(network, optimizer)
        return {"model": model, "optim": optim, "step": step, "data": json.dumps(data.state_dict())}

    if stager.Checkpoint().restore(NEWEST, rewind=False):
        at = state()
        dcp.load(at, checkpoint_id=NEWEST)
        step = at["step"]
        set_state_dict(network, optimizer, model_state_dict=at["model"], optim_state_dict=at["optim"])
        data.load_state_dict(json.loads(at["data"]))
    for _ in range(data.epoch, EPOCHS):
        for pixels, labels, keys in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(pixels), labels)
            loss.backward()
            optimizer.step()
            step += 1
            print(json.dumps({"step": step, "loss": loss.item(), "samples": keys.tolist()}), flush=True)
            if step % EVERY == 0:
                dcp.save(state(), storage_writer=stager.dcp.Writer(f"{OUT}/step-{step}", samples_seen=data.samples_seen))


if __name__ == "__main__":
    main()
