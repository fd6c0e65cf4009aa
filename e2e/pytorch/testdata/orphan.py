"""A worker of a DataLoader that kills its trainer before the loader's own watch begins."""

import multiprocessing
import os
import signal
import time

import stager.torch
import torch.utils.data


def kill(_):
    trainer = os.getppid()
    print(os.getpid(), flush=True)
    os.kill(trainer, signal.SIGKILL)
    while os.getppid() == trainer:
        time.sleep(0.01)


dataset = stager.torch.SampleDataset("train")
dataset._pass, dataset._ends, dataset._parent = 1, [multiprocessing.Pipe()[1]], os.getpid()  # as stager.torch.loader does
next(iter(torch.utils.data.DataLoader(dataset, num_workers=1, worker_init_fn=kill)))
