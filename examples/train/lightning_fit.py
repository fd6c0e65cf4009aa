"""Trains a Lightning module, and resumes at the newest checkpoint.

    python3 lightning_fit.py /out /newest
"""

import glob
import json
import sys

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import stager.lightning
import stager.torch

EPOCHS, EVERY, OUT, NEWEST = 2, 10, sys.argv[1], sys.argv[2]


def decode(s):
    return torch.frombuffer(bytearray(s["bin"]), dtype=torch.uint8).float() / 16, int(s["cls"]), int(s["__key__"])


class Network(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    def training_step(self, batch, _):
        pixels, labels, numbers = batch
        loss = torch.nn.functional.cross_entropy(self.layers(pixels), labels)
        print(json.dumps({"step": self.global_step + 1, "loss": loss.item(), "samples": numbers.tolist()}), flush=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def main():
    lightning.seed_everything(1, verbose=False)
    data = stager.torch.loader(stager.torch.SampleDataset("train", decode=decode), batch_size=16, num_workers=2)
    save = ModelCheckpoint(OUT, filename="{step}", every_n_train_steps=EVERY, save_top_k=-1)
    trainer = lightning.Trainer(
        max_epochs=EPOCHS, callbacks=[save, stager.lightning.Callback(data)], plugins=[stager.lightning.CheckpointIO()],
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    restored = stager.Checkpoint().restore(NEWEST, rewind=False)
    trainer.fit(Network(), data, ckpt_path=glob.glob(f"{NEWEST}/*.ckpt")[0] if restored else None)


if __name__ == "__main__":
    main()
