"""Trains a model of Hugging Face with its Trainer, and resumes at the newest checkpoint.

    python3 hf_trainer.py /out /newest

The Trainer takes the loader as it is. It must not skip batches after a restart: the loader continues where the checkpoint stood.
"""

import json
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import stager.hf
import stager.torch

STEPS, EVERY, OUT, NEWEST = 226, 10, sys.argv[1], sys.argv[2]  # two epochs of 113 batches


def decode(s):
    return {"input_ids": torch.frombuffer(bytearray(s["bin"]), dtype=torch.uint8).long(), "labels": int(s["cls"]), "number": int(s["__key__"])}


class OwnLoader(Trainer):
    def __init__(self, data, **options):
        super().__init__(**options)
        self.data = data

    def get_train_dataloader(self):
        return self.data

    def compute_loss(self, model, inputs, return_outputs=False, **_):
        numbers = inputs.pop("number").tolist()
        outputs = model(**inputs)
        print(json.dumps({"step": self.state.global_step + 1, "loss": outputs.loss.item(), "samples": numbers}), flush=True)
        return (outputs.loss, outputs) if return_outputs else outputs.loss


def main():
    torch.manual_seed(1)
    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "num_labels": 10}
    model = BertForSequenceClassification(BertConfig(vocab_size=17, max_position_embeddings=64, hidden_dropout_prob=0, attention_probs_dropout_prob=0, **small))
    data = stager.torch.loader(stager.torch.SampleDataset("train", decode=decode), batch_size=16, num_workers=2)
    args = TrainingArguments(
        OUT, max_steps=STEPS, save_steps=EVERY, save_total_limit=2, ignore_data_skip=True, learning_rate=3e-3, use_cpu=True, report_to="none", disable_tqdm=True
    )
    trainer = OwnLoader(data, model=model, args=args, callbacks=[stager.hf.Callback(data=data)])
    trainer.train(resume_from_checkpoint=stager.hf.restore(NEWEST, data))


if __name__ == "__main__":
    main()
