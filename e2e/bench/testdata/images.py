"""Makes images of bytes that nothing compresses, and packs the same ones in several formats:

    images.py DIR SHARDS IMAGES SIZE

tar shards for WebDataset in DIR/tar, MDS shards for MosaicML Streaming in DIR/mds, and, if it is there, chunks of LitData in DIR/litdata,
SHARDS of IMAGES each, every image of SIZE bytes. It prints the sum of all their checksums.
"""

import io
import os
import random
import sys
import tarfile
import zlib

from streaming import MDSWriter

directory, shards, images, size = sys.argv[1], *map(int, sys.argv[2:])
source, total = random.Random(1), 0
os.makedirs(f"{directory}/tar")
try:
    from litdata.streaming.writer import BinaryWriter
except ImportError:
    chunks = None
else:
    chunks = BinaryWriter(f"{directory}/litdata", chunk_size=images)
# Of MDS a shard ends when the next image would pass the limit; an image has some bytes around it.
with MDSWriter(out=f"{directory}/mds", columns={"jpg": "bytes", "cls": "int"}, size_limit=images * (size + 64)) as mds:
    for shard in range(shards):
        with tarfile.open(f"{directory}/tar/{shard:05d}.tar", "w") as tar:
            for image in range(shard * images, (shard + 1) * images):
                jpg, label = source.randbytes(size), image % 1000
                total += zlib.crc32(jpg)
                mds.write({"jpg": jpg, "cls": label})
                if chunks:
                    chunks[image] = {"jpg": jpg, "cls": label}
                for kind, data in (("jpg", jpg), ("cls", str(label).encode())):
                    info = tarfile.TarInfo(f"{image:08d}.{kind}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
if chunks:
    chunks.done()
    chunks.merge()
print(total)
