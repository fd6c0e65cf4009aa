"""A trainer to be killed: python3 kills.py WAY, with orders on standard input.

    run OUT FROM    a trainer in a process of its own; FROM is a checkpoint, or "-"
    load DIR        whether the framework loads DIR and makes a step with it
    undisturbed OUT STEP    a trainer from the beginning to a step, which nobody kills

It answers with lines: "pid N", "complete NAME STEP" when the framework says so, "loss STEP VALUE",
"loaded STEP", "failed WHY". Modules are imported once, since trainers are forked.
"""

import importlib
import os
import re
import shutil
import sys
import tempfile
import time
import traceback

import torch

WAY = sys.argv[1]
OUTPUT = os.fdopen(os.dup(1), "w", buffering=1)
KEEP = 2


def say(*words):
    os.write(OUTPUT.fileno(), (" ".join(map(str, words)) + "\n").encode())


def loss_of(model, step):
    """One step of training, the same for each number of a step."""
    model.zero_grad()
    loss = (model(torch.full((8,), 1 / (step + 1))) - 1).pow(2).sum()
    loss.backward()
    return loss


def tiny():
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 8)
    return model, torch.optim.Adam(model.parameters(), lr=0.01)


def advance(model, optimizer, step):
    loss = loss_of(model, step)
    optimizer.step()
    say("loss", step, repr(float(loss.detach())))


def prune(out, step):
    shutil.rmtree(f"{out}/step-{step - KEEP}", ignore_errors=True)


def torch_save_train(out, start, most=10**9):
    model, optimizer = tiny()
    step = torch_save_load(start, model, optimizer) if start else 0
    while step < most:
        step += 1
        advance(model, optimizer, step)
        to = f"{out}/step-{step}"
        shutil.rmtree(to, ignore_errors=True)
        os.mkdir(to)
        torch.save({"model": model.state_dict(), "step": step}, f"{to}/model.pt")
        torch.save({"optimizer": optimizer.state_dict(), "step": step}, f"{to}/optim.pt")
        say("complete", f"step-{step}", step)
        prune(out, step)
        time.sleep(0.3)
    return step


def torch_save_load(start, model, optimizer):
    first, second = torch.load(f"{start}/model.pt"), torch.load(f"{start}/optim.pt")
    assert first["step"] == second["step"], ("of two steps", first["step"], second["step"])
    model.load_state_dict(first["model"])
    optimizer.load_state_dict(second["optimizer"])
    return first["step"]


def two_ranks(work, *args):
    import torch.multiprocessing as mp

    with tempfile.TemporaryDirectory() as top:
        mp.start_processes(grouped, args=(work, os.path.join(top, "store"), args), nprocs=2, start_method="fork")


def grouped(rank, work, store, args):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
    work(rank, *args)
    dist.destroy_process_group()


def dcp_train(out, start, most=10**9):
    two_ranks(dcp_rank, out, start, most)


def dcp_rank(rank, out, start, most):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp

    model, optimizer = tiny()
    own, step = torch.zeros(4), 0

    def state():
        return {"model": model.state_dict(), "optim": optimizer.state_dict(), f"own{rank}": own, "step": torch.tensor(step)}

    if start:
        advance_quietly(model, optimizer)  # so that the optimizer has its state
        s = state()
        dcp.load(s, checkpoint_id=start)
        model.load_state_dict(s["model"])
        optimizer.load_state_dict(s["optim"])
        own, step = s[f"own{rank}"], int(s["step"])
        assert float(own[0]) == step, ("of two steps", own, step)
    while step < most:
        step += 1
        own.fill_(step)
        if rank == 0:
            advance(model, optimizer, step)
        else:
            advance_quietly(model, optimizer, step)
        to = f"{out}/step-{step}"
        if rank == 0:
            shutil.rmtree(to, ignore_errors=True)
        dist.barrier()
        dcp.save(state(), checkpoint_id=to)
        dist.barrier()
        if rank == 0:
            say("complete", f"step-{step}", step)
            prune(out, step)
        time.sleep(0.3)
    if rank == 0:
        say("loaded", step)


def advance_quietly(model, optimizer, step=0):
    loss_of(model, step)
    optimizer.step()


def trainer_train(out, start, most=10**6):
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    class Tells(TrainerCallback):
        def on_save(self, args, state, control, **_):
            say("complete", f"checkpoint-{state.global_step}", state.global_step)
            time.sleep(0.3)

        def on_log(self, args, state, control, logs=None, **_):
            if "loss" in (logs or {}):
                say("loss", state.global_step, repr(logs["loss"]))

    torch.manual_seed(1)
    # Without dropout: a save at SIGTERM is made before a step of the optimizer, and holds a state of
    # the random numbers after that step's dropout.
    model = BertForSequenceClassification(BertConfig(
        vocab_size=10, hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4, max_position_embeddings=4,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0))
    data = [{"input_ids": torch.tensor([i % 10, i % 7]), "labels": torch.tensor(i % 2)} for i in range(64)]
    just_in_time = {"enable_jit_checkpoint": True} if "enable_jit_checkpoint" in TrainingArguments.__dataclass_fields__ else {}
    args = TrainingArguments(
        out, max_steps=most, save_steps=1, logging_steps=1, save_total_limit=KEEP, per_device_train_batch_size=2, report_to=[], disable_tqdm=True,
        use_cpu=True, dataloader_pin_memory=False, lr_scheduler_type="constant", seed=1, **just_in_time)
    t = Trainer(model, args, train_dataset=data, callbacks=[Tells()])
    t.train(resume_from_checkpoint=start)
    return t.state.global_step


def step_of(way, at):
    if way == "trainer":
        import json
        with open(f"{at}/trainer_state.json") as f:
            return json.load(f)["global_step"]
    if way == "torch_save":
        return torch.load(f"{at}/model.pt")["step"]
    import torch.distributed.checkpoint as dcp
    s = {"step": torch.tensor(0)}
    dcp.load(s, checkpoint_id=at, no_dist=True)
    return int(s["step"])


TRAIN = {"torch_save": torch_save_train, "dcp": dcp_train, "trainer": trainer_train}


def load(at):
    """Whether training goes on from a checkpoint: it makes one more step."""
    step = step_of(WAY, at)
    with tempfile.TemporaryDirectory() as out:
        TRAIN[WAY](out, at, step + 1)
    say("loaded", step)


def undisturbed(out, step):
    os.mkdir(out)
    TRAIN[WAY](out, None, int(step))
    say("loaded", step)


def forked(do, *args):
    pid = os.fork()
    if pid:
        return pid
    os.setpgid(0, 0)
    try:
        do(*args)
    except SystemExit:
        pass  # as transformers ends after a save at SIGTERM
    except BaseException:
        say("failed", traceback.format_exc().replace("\n", " | "))
    os._exit(0)


def main():
    torch.set_num_threads(1)
    if WAY == "dcp":
        importlib.import_module("torch.distributed.checkpoint")
    if WAY == "trainer":
        getattr(importlib.import_module("transformers"), "Trainer")  # which is imported when it is asked for
    say("ready", re.sub(r"\+.*", "", torch.__version__))
    for line in sys.stdin:
        order, *rest = line.split()
        if order == "run":
            out, start = rest
            pid = forked(TRAIN[WAY], out, None if start == "-" else start)
            say("pid", pid)
        elif order in ("load", "undisturbed"):
            pid = forked(load if order == "load" else undisturbed, *rest)
            os.waitpid(pid, 0)
            say("over", rest[0])
        elif order == "reap":
            os.waitpid(int(rest[0]), 0)
            say("reaped", rest[0])


main()
