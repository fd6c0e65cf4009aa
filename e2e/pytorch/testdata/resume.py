"""Trains shard by shard, saves every few shards, and goes on where a restored checkpoint stood.

    resume.py EPOCHS OUTPUT RESTORED [KILL]   through the window of $STAGER_SOCKET; at the end it
                                              prints what became of it, as JSON

A checkpoint is made when a shard has come and none of it was used. With KILL it dies with
the shard of that number, without a word.
"""

import hashlib
import json
import os
import signal
import sys

import torch
import webdataset as wds

from stager import commit, resume, shards

epochs, output, restored = int(sys.argv[1]), sys.argv[2], sys.argv[3]
kill = int(sys.argv[4]) if len(sys.argv) > 4 else None
EVERY = 7


def decode(sample):
    pixels = torch.frombuffer(bytearray(sample["bin"]), dtype=torch.uint8).float() / 16
    return pixels, int(sample["cls"]), int(sample["__key__"])


torch.manual_seed(1)
torch.set_num_threads(1)
network = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 10))
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
losses, seen, step = [], [], 0
at = resume(restored)
if at is not None:
    saved = torch.load(os.path.join(restored, "model.pt"))
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    torch.set_rng_state(saved["random"])
    losses, seen, step = saved["losses"], saved["seen"], saved["step"]
    assert at["step"] == step and at["samplesSeen"] == len(seen), at
for epoch in range(epochs):
    for path in shards("train", epoch=epoch):
        if step == kill:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % EVERY == 0 and step > 0:
            name = os.path.join(output, f"step-{step}")
            os.makedirs(name, exist_ok=True)
            saved = {"network": network.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
            torch.save({**saved, "losses": losses, "seen": seen, "step": step}, os.path.join(name, "model.pt"))
            commit("ckpt", name, samples_seen=len(seen))
        step += 1
        loader = torch.utils.data.DataLoader(wds.DataPipeline(lambda: iter([{"url": path}]), wds.tarfile_to_samples(), wds.map(decode)), batch_size=16)
        for pixels, labels, numbers in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(pixels), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            seen += numbers.tolist()
weights = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in network.parameters())).hexdigest()
json.dump({"losses": losses, "samples": seen, "weights": weights, "restored": at and at["step"]}, sys.stdout)
