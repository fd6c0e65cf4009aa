"""Writes the samples of the tar archives of a directory in shards of MosaicML Streaming.

    pack_streaming.py FROM INTO
"""

import glob
import sys
import tarfile

from streaming import MDSWriter


def main():
    source, into = sys.argv[1:]
    with MDSWriter(out=into, columns={"pixels": "bytes", "label": "int", "number": "int"}, size_limit=4 << 10) as out:
        for path in sorted(glob.glob(f"{source}/*.tar")):
            with tarfile.open(path) as archive:
                files = {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}
            for name in sorted(n for n in files if n.endswith(".bin")):
                key = name.rpartition(".")[0]
                out.write({"pixels": files[name], "label": int(files[key + ".cls"]), "number": int(key)})


if __name__ == "__main__":
    main()
