"""Workers of a loader share epochs: forked or spawned, one of them late, one that gives up
early, one that is a copy made in mid-epoch. Each shard is read whole by one of them.

    workers.py SOCKET SHARDS fork|spawn

The window has SHARDS shards and three epochs.
"""

import collections
import multiprocessing
import os
import pickle
import sys

from stager import StagerError, cursor, shards, status


def give_up(source):
    for _ in source:
        break  # it goes to another


def work(source, got, gate=None):
    if gate is not None:
        gate.wait()
    for path in source:
        with open(path, "rb") as f:
            assert len(f.read()) == path.size, path
        got.put((path.epoch, path.position))


def epoch(ctx, socket, number, lag):
    """Four workers, one of which comes when all has been read, and one that gives up."""
    source = pickle.loads(pickle.dumps(shards("train", socket=socket, epoch=number, ack_lag=lag)))
    got, gate = ctx.Queue(), ctx.Event()
    early = ctx.Process(target=give_up, args=(source,))
    others = [ctx.Process(target=work, args=(source, got)) for _ in range(3)]
    late = ctx.Process(target=work, args=(source, got, gate))
    for p in [early, *others, late]:
        p.start()
    result = []

    def drain():
        while not got.empty():
            result.append(got.get())

    for p in [early, *others]:
        while p.is_alive():
            drain()
            p.join(0.01)
    gate.set()
    late.join()
    drain()
    bad = [p.exitcode for p in [early, *others, late] if p.exitcode != 0]
    assert not bad, f"workers ended with {bad}"
    return collections.Counter(result)


def forked_in_mid_epoch(socket, number):
    """A copy made between two shards reads on its own; what was held stays its parent's."""
    mine = iter(shards("train", socket=socket, epoch=number))
    got = [next(mine).position]
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(into, bytes([next(mine).position, next(mine).position]))
        os._exit(0)  # as if it were killed: it holds one shard
    os.close(into)
    os.waitpid(child, 0)
    theirs = os.read(out, 10)
    assert len({*got, *theirs}) == 3, f"the parent holds {got}, the child got {list(theirs)}"
    got += [p.position for p in mine]
    return collections.Counter((number, p) for p in [*got, theirs[0]])


if __name__ == "__main__":
    socket, count, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    ctx = multiprocessing.get_context(how)
    for number, lag in enumerate([0, 2]):
        got = epoch(ctx, socket, number, lag)
        want = collections.Counter((number, p) for p in range(count))
        assert got == want, f"epoch {number}: got {got}, want each of {count} once"
    got = forked_in_mid_epoch(socket, 2)
    assert got == collections.Counter((2, p) for p in range(count)), f"got {got}, want each once"
    at = cursor("train", socket=socket)
    assert at["epoch"] == 3, f"after three epochs the cursor is {at}"
    at.update(epoch=1, settled={"1": [[0, count - 2]]})
    assert cursor("train", at, socket=socket) == at
    again = [(p.epoch, p.position, p.attempt) for p in shards("train", socket=socket)]
    assert again == [(1, count - 1, 1)], f"after going back got {again}"
    try:
        cursor("train", {**at, "manifest": "another"}, socket=socket)
    except StagerError as err:
        assert err.code == 422 and "another manifest" in str(err), err
    else:
        raise AssertionError("a cursor of another manifest is taken")
    last = status(socket)["inputs"][0]["window"]
    print("delivered", last["delivered"], "acknowledged", last["acknowledged"])
