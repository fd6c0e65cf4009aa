"""Packs scikit-learn's handwritten digits, 1,797 of 64 pixels, into WebDataset shards.

    pack.py DIGITS_CSV_GZ DIR SHARDS
"""

import gzip
import io
import sys
import tarfile

digits, directory, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
with gzip.open(digits, "rt") as f:
    rows = [[int(float(x)) for x in line.split(",")] for line in f]
for shard in range(count):
    with tarfile.open(f"{directory}/digits-{shard:03d}.tar", "w") as tar:
        for number in range(shard, len(rows), count):
            *pixels, label = rows[number]
            for kind, body in ("bin", bytes(pixels)), ("cls", str(label).encode()):
                entry = tarfile.TarInfo(f"{number:06d}.{kind}")
                entry.size = len(body)
                tar.addfile(entry, io.BytesIO(body))
