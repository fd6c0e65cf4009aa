"""Trains with TensorFlow through tf.data, and resumes at the newest checkpoint.

    python3 tf_data.py /newest
"""

import json
import sys

import numpy as np
import tensorflow as tf

import stager.tf

EPOCHS, EVERY, NEWEST = 2, 10, sys.argv[1]  # saves every 10 steps; checkpoints are restored to NEWEST
SIGNATURE = (tf.TensorSpec((64,), tf.float32), tf.TensorSpec((), tf.int64), tf.TensorSpec((), tf.int64))


def decode(s):
    return np.frombuffer(s["bin"], np.uint8).astype(np.float32), int(s["cls"]), int(s["__key__"])


def scale(pixels, labels, keys):
    return pixels / 16, labels, keys


def main():
    tf.keras.utils.set_random_seed(1)
    network = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(32, "relu"), tf.keras.layers.Dense(10)])
    optimizer = tf.keras.optimizers.SGD(0.05, momentum=0.9)
    optimizer.build(network.trainable_variables)
    step = tf.Variable(0, dtype=tf.int64)
    saved = tf.train.Checkpoint(network=network, optimizer=optimizer, step=step)

    @tf.function(reduce_retracing=True)
    def train(pixels, labels):
        with tf.GradientTape() as tape:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, network(pixels))
            loss = tf.reduce_mean(losses)
        optimizer.apply_gradients(zip(tape.gradient(loss, network.trainable_variables), network.trainable_variables))
        return loss

    data = stager.tf.dataset("train", SIGNATURE, decode=decode).map(scale, num_parallel_calls=2).batch(16).prefetch(4)
    if stager.Checkpoint().restore(NEWEST, rewind=False):
        saved.read(f"{NEWEST}/train").assert_consumed()
        with open(f"{NEWEST}/data.json") as file:
            data.load_state_dict(json.load(file))
    for _ in range(data.epoch, EPOCHS):
        for pixels, labels, keys in data:
            loss = train(pixels, labels)
            step.assign_add(1)
            print(json.dumps({"step": int(step), "loss": float(loss), "samples": keys.numpy().tolist()}), flush=True)
            if int(step) % EVERY == 0:
                with stager.checkpoint(int(step), samples_seen=data.samples_seen) as directory, open(f"{directory}/data.json", "w") as file:
                    saved.write(f"{directory}/train")
                    json.dump(data.state_dict(), file)


if __name__ == "__main__":
    main()
