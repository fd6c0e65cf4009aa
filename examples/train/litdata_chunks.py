"""Trains on chunks of LitData, and resumes at the newest checkpoint.

    python3 litdata_chunks.py s3://digits/litdata/index.json /newest
"""

import json
import sys

import torch

import stager.torch

EPOCHS, EVERY, INDEX, NEWEST = 2, 10, sys.argv[1], sys.argv[2]  # checkpoints are restored to NEWEST


def decode(s):
    return torch.frombuffer(bytearray(s["pixels"]), dtype=torch.uint8).float() / 16, s["label"], s["number"]


def main():
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
    optimizer, step = torch.optim.AdamW(network.parameters(), lr=0.01), 0
    data = stager.torch.loader(stager.litdata("train", stager.staged(INDEX), decode=decode), batch_size=16, num_workers=2)
    if stager.Checkpoint().restore(NEWEST, rewind=False):
        model, optim, step, state = torch.load(f"{NEWEST}/train.pt")
        network.load_state_dict(model), optimizer.load_state_dict(optim), data.load_state_dict(state)
    for _ in range(data.epoch, EPOCHS):
        for pixels, labels, numbers in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(pixels), labels)
            loss.backward()
            optimizer.step()
            step += 1
            print(json.dumps({"step": step, "loss": loss.item(), "samples": numbers.tolist()}), flush=True)
            if step % EVERY == 0:
                with stager.checkpoint(step, samples_seen=data.samples_seen) as directory:
                    torch.save((network.state_dict(), optimizer.state_dict(), step, data.state_dict()), f"{directory}/train.pt")


if __name__ == "__main__":
    main()
