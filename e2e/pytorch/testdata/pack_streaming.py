"""Writes the samples of the tar archives of a directory in shards of MosaicML Streaming or chunks of LitData.

    pack_streaming.py mds|litdata FROM INTO
"""

import glob
import sys
import tarfile


def samples(directory):
    for path in sorted(glob.glob(f"{directory}/*.tar")):
        with tarfile.open(path) as archive:
            files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}
        for name in sorted(n for n in files if n.endswith(".bin")):
            key = name.rpartition(".")[0]
            yield {"pixels": files[name], "label": int(files[key + ".cls"]), "number": int(key.rpartition("/")[2])}


def main():
    kind, source, into = sys.argv[1:]
    if kind == "mds":
        from streaming import MDSWriter

        with MDSWriter(out=into, columns={"pixels": "bytes", "label": "int", "number": "int"}, size_limit=4 << 10) as out:
            for sample in samples(source):
                out.write(sample)
        return
    from litdata.streaming.writer import BinaryWriter

    out = BinaryWriter(into, chunk_size=50)
    for i, sample in enumerate(samples(source)):
        out[i] = sample
    out.done()
    out.merge()


if __name__ == "__main__":
    main()
