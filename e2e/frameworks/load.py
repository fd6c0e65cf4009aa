"""Has a library load checkpoints that were restored, and go on: python3 load.py NAME DIR...

NAME is a case of record.py, and each DIR one of its checkpoints as "stager restore" brings it.
It prints what was loaded, and fails when it does not load.

    python3 load.py --has NAME    # prints the version; ends with 3 when the library is not there
"""

import importlib.util
import os
import sys
import tempfile

import record

LOADS = {}


def load(f):
    LOADS[f.__name__] = f
    return f


def one(at, ending=""):
    """The only file of a checkpoint that has this ending."""
    files = [name for name in os.listdir(at) if name.endswith(ending) and name != "RESTORED.json"]
    assert len(files) == 1, files
    return os.path.join(at, files[0])


def step_of(at):
    import json

    with open(f"{at}/RESTORED.json") as f:
        return json.load(f)["step"]


def goes_on(model, optimizer):
    import torch

    before = [p.clone() for p in model.parameters()]
    optimizer.zero_grad()
    model(torch.ones(8)).sum().backward()
    optimizer.step()
    assert any((p != q).any() for p, q in zip(before, model.parameters())), "a step changed nothing"


@load
def torch_save(at):
    import torch

    state = torch.load(one(at, ".pt"))
    model, optimizer = record.model_and_optimizer()
    model.load_state_dict(state["model"])
    goes_on(model, optimizer)
    return state["step"]


torch_save_legacy = LOADS["torch_save_legacy"] = torch_save


@load
def torch_save_directory(at):
    import torch

    model, optimizer = record.model_and_optimizer()
    model.load_state_dict(torch.load(f"{at}/model.pt"))
    optimizer.load_state_dict(torch.load(f"{at}/optim.pt"))
    goes_on(model, optimizer)
    return len(optimizer.state_dict()["state"])


@load
def torch_dcp(at):
    def work(rank, _):
        import torch
        import torch.distributed.checkpoint as dcp

        model = torch.nn.Linear(8, 8)
        state = {"w": model.state_dict(), f"only{rank}": torch.zeros(8)}
        read = getattr(dcp, "load", None) or dcp.load_state_dict  # torch 2.1 has only this one
        read(state, storage_reader=dcp.FileSystemReader(at))
        assert (state[f"only{rank}"] == rank).all(), state[f"only{rank}"]
        model.load_state_dict(state["w"])
        goes_on(model, torch.optim.SGD(model.parameters(), lr=0.1))
    record.ranks(work, at)
    return "2 ranks"


LOADS["torch_dcp_async"] = torch_dcp


@load
def torch_dcp_no_collectives(at):
    def work(rank, _):
        import torch
        import torch.distributed.checkpoint as dcp

        state = {"w": torch.nn.Linear(8, 8).state_dict(), f"only{rank}": torch.zeros(8)}
        dcp.load(state, storage_reader=dcp.FileSystemReader(at), no_dist=False)
        assert (state[f"only{rank}"] == rank).all(), state[f"only{rank}"]
    record.ranks(work, at)
    return "2 ranks"


@load
def torch_fsdp2(at):
    def work(rank, _):
        import torch.distributed.checkpoint as dcp
        from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

        model, optimizer = record.sharded_model_and_optimizer()
        parts = get_state_dict(model, optimizer)
        state = {"model": parts[0], "optim": parts[1]}
        dcp.load(state, checkpoint_id=at)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
        optimizer.step()
    record.ranks(work, at)
    return "2 ranks"


@load
def safetensors(at):
    from safetensors.torch import load_file

    return sorted(load_file(one(at, ".safetensors")))


@load
def safetensors_sharded(at):
    import json
    from safetensors.torch import load_file

    with open(one(at, ".index.json")) as f:
        index = json.load(f)["weight_map"]
    for name, shard in index.items():
        assert name in load_file(f"{at}/{shard}"), (name, shard)
    return len(index)


@load
def trainer(at):
    import json

    with open(f"{at}/trainer_state.json") as f:
        step = json.load(f)["global_step"]
    with tempfile.TemporaryDirectory() as out:
        t = record.tiny_trainer(out, max_steps=step + 2, save_strategy="no")
        t.train(resume_from_checkpoint=at)
    assert t.state.global_step == step + 2, t.state.global_step
    return step


LOADS["trainer_keeps_one"] = LOADS["trainer_just_in_time"] = trainer


@load
def accelerate(at):
    from accelerate import Accelerator

    a = Accelerator(cpu=True)
    model, optimizer = a.prepare(*record.model_and_optimizer())
    a.load_state(at)
    goes_on(model, optimizer)
    return len(os.listdir(at))


@load
def peft(at):
    import torch
    from peft import PeftModel

    model = PeftModel.from_pretrained(torch.nn.Sequential(torch.nn.Linear(4, 4)), at)
    model(torch.ones(4))
    return model.peft_config["default"].r


@load
def lightning(at):
    import lightning as L

    net, data = record.tiny_lightning()
    t = L.Trainer(max_steps=6, accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False)
    t.fit(net, data, ckpt_path=one(at, ".ckpt"))
    assert t.global_step == 6, t.global_step
    return t.global_step


LOADS["nemo"] = lightning


@load
def orbax(at):
    import numpy as np
    import orbax.checkpoint as ocp

    w = ocp.StandardCheckpointer().restore(f"{at}/default", {"w": np.zeros((4, 4), np.float32)})["w"]
    assert np.all(np.asarray(w) == 1), w
    return w.shape


@load
def flax(at):
    import numpy as np
    from flax.training import checkpoints

    files = [name for name in os.listdir(at) if name != "RESTORED.json"]
    w = checkpoints.restore_checkpoint(f"{at}/{files[0]}" if len(files) == 1 else at, {"w": np.zeros((4, 4), np.float32)})["w"]
    assert np.all(np.asarray(w) == 1), w
    return w.shape


@load
def keras(at):
    import keras as lib
    import numpy as np

    if any(name.endswith(".keras") for name in os.listdir(at)):
        model = lib.models.load_model(one(at, ".keras"))
    else:
        model = record.tiny_keras()
        model.load_weights(one(at, ".weights.h5"))
    model.fit(np.ones((4, 2)), np.ones((4, 2)), verbose=0)
    return len(model.weights)


@load
def keras_backup(at):
    import keras
    import numpy as np

    model = record.tiny_keras()
    back = keras.callbacks.BackupAndRestore(at)
    done = model.fit(np.ones((4, 2)), np.ones((4, 2)), epochs=4, verbose=0, callbacks=[back])
    assert done.epoch in ([0, 1, 2, 3], [1, 2, 3], [2, 3]), done.epoch  # from the first backup, or the second; Keras 3.0 records no epoch
    return done.epoch


@load
def tensorflow(at):
    import tensorflow as tf

    v = tf.Variable(tf.zeros((4, 4)))
    tf.train.Checkpoint(v=v).restore(tf.train.latest_checkpoint(at) or one(at, ".index").removesuffix(".index")).assert_existing_objects_matched()
    assert bool(tf.reduce_all(v == 1)), v
    return v.shape


@load
def numpy(at):
    import numpy as np

    if any(name.endswith(".npz") for name in os.listdir(at)):
        with np.load(one(at, ".npz")) as arrays:
            return [arrays[name].shape for name in ("a", "b")]
    return [np.load(f"{at}/{name}").shape for name in ("a.npy", "b.npy")]


@load
def joblib(at):
    import joblib as lib
    import numpy as np

    model, state = lib.load(f"{at}/model.joblib"), lib.load(f"{at}/state.joblib.gz")
    model.partial_fit(np.eye(4), [0, 1, 0, 1])
    return state["rounds"]


@load
def xgboost(at):
    import numpy as np
    import xgboost as xgb

    for name in ("model.ubj", "model.json"):
        model = xgb.train({"max_depth": 2}, xgb.DMatrix(np.eye(4), label=[0, 1, 0, 1]), num_boost_round=1, xgb_model=f"{at}/{name}")
        assert model.num_boosted_rounds() == 3, model.num_boosted_rounds()
    return "3 rounds"


@load
def deepspeed(at):
    import torch
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint

    stage = (step_of(at) - 1) // 1000
    model, _ = record.model_and_optimizer()
    with tempfile.TemporaryDirectory() as top:
        os.symlink(os.path.abspath(at), f"{top}/tag")  # DeepSpeed asks for a directory and a name in it
        weights = get_fp32_state_dict_from_zero_checkpoint(top, tag="tag")
        assert sorted(weights) == ["bias", "weight"], weights
        engine = record.zero_engine(model, stage)
        path, _ = engine.load_checkpoint(top, tag="tag")
        assert path, "DeepSpeed loaded nothing"
    engine.backward(engine(torch.ones(1, 8)).sum())
    engine.step()
    return f"ZeRO {stage}"


@load
def megatron_core(at):
    def work(rank, _):
        import torch
        from megatron.core import dist_checkpointing as checkpointing

        torch.cuda.synchronize, torch.cuda.current_device = lambda *_: None, lambda: "cpu"  # there is no GPU
        shard = checkpointing.ShardedTensor.from_rank_offsets("w", torch.zeros(4, 8), (0, rank, 2), replica_id=0)
        state = checkpointing.load({"w": shard}, at)
        assert (state["w"] == rank).all() and state["iteration"] == step_of(at), state
    record.ranks(work, at)
    return "2 ranks"


@load
def ray_train(at):
    import torch
    from ray.train import Checkpoint

    with Checkpoint.from_directory(at).as_directory() as local:
        model, optimizer = record.model_and_optimizer()
        model.load_state_dict(torch.load(f"{local}/model.pt"))
        goes_on(model, optimizer)
        return torch.load(f"{local}/state.pt")["epoch"]


def missing(name):
    """Ends with 3 when a library of a case is not there."""
    for package in record.CASES[name][1]:
        if not record.version(package)[0] and importlib.util.find_spec(package) is None:
            print(f"there is no {package}")
            sys.exit(3)
    if name not in LOADS:
        print("nobody wrote how it loads")
        sys.exit(3)
    print(record.version(record.CASES[name][1][0])[1] or torch_version())


def torch_version():
    import torch  # Debian's has no metadata

    return torch.__version__


if __name__ == "__main__":
    if sys.argv[1] == "--has":
        missing(sys.argv[2])
    else:
        for at in sys.argv[2:]:
            print("loaded", LOADS[sys.argv[1]](at))
