"""Trains with JAX on what Grain makes of the samples, saves by Orbax, and resumes at the newest checkpoint.

    python3 jax_grain.py /out /newest
"""

import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp

import stager.grain
import stager.orbax

EPOCHS, EVERY, OUT, NEWEST = 2, 10, sys.argv[1], sys.argv[2]


def decode(s):
    return np.frombuffer(s["bin"], np.uint8).astype(np.float32) / 16, int(s["cls"]), int(s["__key__"])


def loss_of(network, pixels, labels):
    logits = jax.nn.log_softmax(jax.nn.relu(pixels @ network["in"]) @ network["out"])
    return -jnp.mean(jnp.take_along_axis(logits, labels[:, None], axis=1))


@jax.jit
def train(state, pixels, labels):
    loss, gradient = jax.value_and_grad(loss_of)(state["network"], pixels, labels)
    speed = jax.tree.map(lambda v, g: 0.9 * v + g, state["speed"], gradient)
    network = jax.tree.map(lambda w, v: w - 0.05 * v, state["network"], speed)
    return {"network": network, "speed": speed, "step": state["step"] + 1}, loss


def main():
    into, out = jax.random.split(jax.random.key(1))
    network = {"in": jax.random.normal(into, (64, 32)) / 8, "out": jax.random.normal(out, (32, 10)) / 6}
    state = {"network": network, "speed": jax.tree.map(jnp.zeros_like, network), "step": jnp.zeros((), jnp.int32)}
    data = stager.grain.loader("train", lambda samples: samples.map(decode).batch(16))
    if stager.Checkpoint().restore(NEWEST, rewind=False):
        checkpointer, like = ocp.Checkpointer(ocp.CompositeCheckpointHandler()), ocp.args.StandardRestore(state)
        at = checkpointer.restore(NEWEST, args=ocp.args.Composite(state=like, data=ocp.args.JsonRestore()))
        state = at["state"]
        data.load_state_dict(at["data"])
    with stager.orbax.CheckpointManager(OUT, data=data) as manager:
        for late in [s for s in manager.all_steps() if s > state["step"]]:
            manager.delete(late)  # of a run that ended before they were in the store: they come again
        for _ in range(data.epoch, EPOCHS):
            for pixels, labels, keys in data:
                state, loss = train(state, pixels, labels)
                step = int(state["step"])
                print(json.dumps({"step": step, "loss": float(loss), "samples": keys.tolist()}), flush=True)
                if step % EVERY == 0:
                    manager.save(step, args=ocp.args.Composite(state=ocp.args.StandardSave(state), data=ocp.args.JsonSave(data.state_dict())))


if __name__ == "__main__":
    main()
