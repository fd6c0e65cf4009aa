"""Reads every image once, in a PyTorch DataLoader, and works for a fixed time on each.

    train.py KIND SOURCE DIR --images N --sum N --work SECONDS --result FILE [--size BYTES] [--workers N] [--daemon COMMAND…]

KIND is "window", a window of stager's, whose input is SOURCE, with WebDataset; "samples", the same with stager's own loader, where COMMAND
is the daemon, or whatever else starts with the loop; "webdataset", shards of the URLs that the file SOURCE lists, through WebDataset's own cache, or
without one if SIZE is 0; "mosaic", MosaicML Streaming of SOURCE; or "litdata", LitData's. DIR is what each fills, SIZE how much of it each may use. What the trainer saw is
left in FILE, as JSON. The images are all those that SUM is made of: it is the sum of their checksums.
"""

import argparse
import json
import os
import signal
import subprocess
import threading
import time
import zlib

import torch

args = argparse.ArgumentParser()
args.add_argument("kind", choices=["window", "samples", "webdataset", "mosaic", "litdata"])
args.add_argument("source")
args.add_argument("directory")
args.add_argument("--images", type=int, required=True)
args.add_argument("--sum", type=int, required=True)
args.add_argument("--work", type=float, required=True)
args.add_argument("--result", required=True)
args.add_argument("--size", type=int, default=0)
args.add_argument("--workers", type=int, default=4)
args.add_argument("--daemon", nargs=argparse.REMAINDER)
args = args.parse_args()

BATCH = 32
AHEAD = 256  # images that a worker of MosaicML Streaming gets before they are asked for, two shards of them


class Window(torch.utils.data.IterableDataset):
    """The shards that a worker gets of a window, as WebDataset wants them."""

    def __iter__(self):
        from stager import shards

        return ({"url": path} for path in shards(args.source, ack_lag=0))


def pair(sample):
    return sample["jpg"], int(sample["cls"])


def window():
    import webdataset as wds

    return wds.DataPipeline(Window(), wds.tarfile_to_samples(), wds.map(pair))


def webdataset():
    import webdataset as wds

    with open(args.source) as f:
        urls = f.read().split()
    cache = {"cache_dir": args.directory, "cache_size": args.size} if args.size else {}
    os.makedirs(args.directory, exist_ok=True)
    return wds.WebDataset(urls, shardshuffle=False, **cache).map(pair)


def mosaic():
    from streaming import StreamingDataset

    class Images(StreamingDataset):
        def __getitem__(self, at):
            return pair(super().__getitem__(at))

    images = Images(remote=args.source, local=args.directory, cache_limit=args.size, batch_size=BATCH, predownload=AHEAD)
    for stream in images.streams:
        # It got the index here, and forked workers would share that connection: they would wait for ever
        # for each other's answers (version 0.13.0).
        stream._downloader.clean_up()
    return images


def litdata():
    import litdata
    from litdata.streaming import downloader

    downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # it connects by HTTPS alone (version 0.2.76)

    class Images(litdata.StreamingDataset):
        def __getitem__(self, at):
            jpg, label = pair(super().__getitem__(at))
            return bytes(jpg), label  # a view of its buffer is not pickled

    return Images(args.source, cache_dir=args.directory, max_cache_size=args.size)


def loader():
    options = {"batch_size": BATCH, "num_workers": args.workers, "collate_fn": list}
    if args.kind == "samples":
        from stager.torch import SampleDataset
        from stager.torch import loader as of

        return of(SampleDataset(args.source, decode=pair), **options)
    if args.kind == "litdata":
        from litdata import StreamingDataLoader

        return StreamingDataLoader(litdata(), **options)
    return torch.utils.data.DataLoader({"window": window, "webdataset": webdataset, "mosaic": mosaic}[args.kind](), **options)


def watch(most, over):
    """Notes how much the directory takes, at its most. To look takes the loop's processor a millisecond."""
    while not over.wait(0.1):
        found = {}  # by inode: a file may have two names, and may be renamed meanwhile
        for directory, _, names in os.walk(args.directory):
            for name in names:
                try:
                    stat = os.lstat(os.path.join(directory, name))
                except FileNotFoundError:
                    continue
                found[stat.st_ino] = stat.st_blocks * 512
        most[0] = max(most[0], sum(found.values()))


def busy():
    """Returns the CPU seconds of the whole machine, all but what it was idle."""
    with open("/proc/stat") as f:
        user, nice, system, idle, iowait, irq, softirq, *_ = map(int, f.readline().split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


most, over = [0], threading.Event()
watcher = threading.Thread(target=watch, args=(most, over), daemon=True)
batches = loader()
signal.alarm(120)  # who waits for ever is not measured
used = busy()
began = asked = time.monotonic()
daemon = subprocess.Popen(args.daemon) if args.daemon else None
batches = iter(batches)
watcher.start()  # behind the fork of the workers
first, waited, seen, total = 0.0, 0.0, 0, 0
for batch in batches:
    came = time.monotonic()
    if seen == 0:
        first = came - began
    else:
        waited += came - asked
    seen += len(batch)
    total += sum(zlib.crc32(jpg) for jpg, _ in batch)
    time.sleep(max(0.0, came + args.work * len(batch) - time.monotonic()))
    asked = time.monotonic()
ended = asked
used = busy() - used
over.set()
watcher.join()
if (seen, total) != (args.images, args.sum):
    raise SystemExit(f"{seen} images came, of checksums {total}; want {args.images} of {args.sum}")
result = {"images": seen, "seconds": ended - began, "first": first, "waited": waited, "onDisk": most[0], "busy": used / (ended - began) / os.cpu_count()}
if args.kind in ("window", "samples"):
    from stager import status

    readers = [r for i in status()["inputs"] for r in i["window"]["readers"]]
    result["starved"] = sum(sum(r["waits"].values()) for r in readers)
with open(args.result, "w") as f:
    json.dump(result, f)
if daemon:
    daemon.terminate()
    daemon.wait()
