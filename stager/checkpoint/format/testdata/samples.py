"""Writes samples.json.gz: small files of many libraries. What cannot be imported is kept
from the file that is there.

    python3 samples.py
"""

import base64
import gzip
import json
import os
import pickle
import tempfile
import zipfile

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "samples.json.gz")


def with_torch(d):
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file

    state = {"w": torch.ones(4, 4), "step": 3}
    torch.save(state, d + "/torch.pt")
    torch.save(state, d + "/legacy.pt", _use_new_zipfile_serialization=False)
    save_file({"a": torch.ones(16), "b": torch.zeros(4, 4)}, d + "/m.safetensors")
    dcp.save({"w": torch.ones(4)}, checkpoint_id=d + "/dcp", no_dist=True)
    for name in os.listdir(d + "/dcp"):
        if name.endswith(".distcp"):
            os.remove(f"{d}/dcp/{name}")


def with_numpy(d):
    import numpy as np

    np.savez(d + "/a.npz", a=np.ones(8), b=np.zeros((2, 2)))
    np.save(d + "/f8.npy", np.ones((3, 4)))
    np.save(d + "/i1.npy", np.int8(3))
    np.save(d + "/u5.npy", np.array(["a", "bcdef"]))
    np.save(d + "/date.npy", np.array(["2026-01-01"], "M8[ns]"))
    np.save(d + "/fields.npy", np.zeros(2, [("a", "f4"), ("b", "i2")]))


def with_h5py(d):
    import h5py

    for name, version in (("w.weights.h5", None), ("latest.h5", "latest")):
        with h5py.File(f"{d}/{name}", "w", libver=version) as f:
            f["a"] = [1.0, 2.0]


def with_pyarrow(d):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"a": [1, 2, 3]}), d + "/t.parquet")


def with_joblib(d):
    import joblib
    import numpy as np

    joblib.dump({"a": np.arange(300, dtype="f4"), "b": 2}, d + "/joblib.pkl")


def with_keras(d):
    import keras

    keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)]).save(d + "/m.keras")


def with_tensorflow(d):
    import tensorflow as tf

    tf.train.Checkpoint(v=tf.Variable(1.0)).write(d + "/ckpt-500")
    os.remove(d + "/ckpt-500.data-00000-of-00001")


def with_python(d):
    with zipfile.ZipFile(d + "/comment.zip", "w") as z:
        z.comment = b"a comment" * 900
        z.writestr("a", "b")
    with zipfile.ZipFile(d + "/zip64.zip", "w") as z:
        for n in range(3):
            with z.open(str(n), "w", force_zip64=True) as f:
                f.write(b"x" * 10)
        limit, zipfile.ZIP_FILECOUNT_LIMIT = zipfile.ZIP_FILECOUNT_LIMIT, 1
        z.close()
        zipfile.ZIP_FILECOUNT_LIMIT = limit
    state = {"a": list(range(300)), "b": ("x", 1.5, b"yz", None, {1, 2}), "c": 1 << 70}
    for protocol in (2, 5):
        with open(f"{d}/p{protocol}.pkl", "wb") as f:
            pickle.dump(state, f, protocol)
    with open(d + "/trainer_state.json", "w") as f:
        json.dump({"global_step": 3, "log_history": [{"loss": 1.0}]}, f, indent=2)


if __name__ == "__main__":
    files = {}
    if os.path.exists(HERE):
        with gzip.open(HERE) as f:
            files = json.load(f)
    for write in (with_torch, with_numpy, with_h5py, with_pyarrow, with_joblib, with_keras, with_tensorflow, with_python):
        with tempfile.TemporaryDirectory() as d:
            try:
                write(d)
            except ImportError as e:
                print(f"{write.__name__}: {e}")
            for top, _, names in os.walk(d):
                for name in names:
                    p = os.path.join(top, name)
                    with open(p, "rb") as f:
                        files[os.path.relpath(p, d)] = base64.b64encode(f.read()).decode()
    with open(HERE, "wb") as f:
        f.write(gzip.compress(json.dumps(files, sort_keys=True).encode(), 9, mtime=0))
