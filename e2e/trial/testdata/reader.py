"""A reader of the trials that takes its shards by the Python client.

    reader.py SOCKET INPUT ID EPOCHS RECORD PACE_SECONDS
"""

import hashlib
import json
import logging
import sys
import time

from stager import shards

_, socket, input, reader, epochs, record_path, pace = sys.argv
late = False


class Late(logging.Handler):
    """Hears that a lease had ended before it was acknowledged."""

    def emit(self, message: logging.LogRecord) -> None:
        global late
        late = late or "redelivered" in message.getMessage()


logging.getLogger("stager").addHandler(Late())
with open(record_path, "a") as record:

    def note(what, **more):
        record.write(json.dumps({"what": what, **more}) + "\n")
        record.flush()

    for epoch in range(int(epochs)):
        acking = None
        for path in shards(input, reader=reader, socket=socket, epoch=epoch):
            if acking is not None:
                note("late" if late else "acked", **acking)
            late = False
            with open(path, "rb") as f:
                digest = hashlib.sha256(f.read()).hexdigest()
            took = {"epoch": path.epoch, "pos": path.position, "name": path, "sha256": digest, "attempt": path.attempt}
            note("took", **took)
            time.sleep(float(pace))  # the work of a trainer
            note("acking", **took)  # a kill from here on leaves open whether it was heard
            acking = took
        if acking is not None:
            note("late" if late else "acked", **acking)
        note("end", epoch=epoch)
