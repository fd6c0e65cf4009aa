"""Trains with Ray Train, and resumes at the newest checkpoint.

    python3 ray_train.py /out /newest

Ray starts a worker again that was killed, and a trainer that was killed is run again: both resume in the same way.
"""

import functools
import json
import sys
import tempfile

import numpy as np
import ray.train
import torch
from ray.train.torch import TorchTrainer

import stager.ray

EPOCHS, EVERY, OUT, NEWEST = 2, 10, sys.argv[1], sys.argv[2]  # checkpoints are restored to NEWEST


def decode(s):
    return {"pixels": np.frombuffer(s["bin"], dtype=np.uint8).astype(np.float32) / 16, "label": int(s["cls"]), "number": int(s["__key__"])}


def train():
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer, step = torch.optim.AdamW(network.parameters(), lr=0.01), 0
    data = stager.ray.dataset("train", decode=decode)
    if stager.Checkpoint().restore(NEWEST, rewind=False):
        model, optim, step, state = torch.load(f"{NEWEST}/train.pt")
        network.load_state_dict(model), optimizer.load_state_dict(optim), data.load_state_dict(state)
    for _ in range(data.epoch, EPOCHS):
        for batch in data.iter_torch_batches(batch_size=16):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(batch["pixels"]), batch["label"])
            loss.backward()
            optimizer.step()
            step += 1
            print(json.dumps({"step": step, "loss": loss.item(), "samples": batch["number"].tolist()}), flush=True)
            if step % EVERY == 0:
                with tempfile.TemporaryDirectory() as directory:
                    torch.save((network.state_dict(), optimizer.state_dict(), step, data.state_dict()), f"{directory}/train.pt")
                    saved = {"checkpoint": ray.train.Checkpoint(directory), "checkpoint_dir_name": f"step-{step}"}
                    upload = functools.partial(stager.ray.checkpoint_upload_fn, samples_seen=data.samples_seen)
                    ray.train.report({"loss": loss.item()}, **saved, checkpoint_upload_fn=upload)


if __name__ == "__main__":
    again = ray.train.FailureConfig(max_failures=-1)
    TorchTrainer(train, run_config=ray.train.RunConfig(name="digits", storage_path=OUT, failure_config=again)).fit()
