"""A fake daemon for tests: it serves the shards of a directory, one epoch, over a Unix socket."""

import contextlib
import io
import json
import os
import socketserver
import tarfile
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler


class Fake(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def __init__(self, path, shards=(), api="1", fail=None, outputs=None):
        super().__init__(path, Handler)
        self.outputs, self.commits, self.ready = outputs or {}, [], True
        self.manifest, self.listing = "m", 0  # how often the cursor is not known yet
        self.cursors = []  # queries
        self.path, self.shards, self.api, self.fail = path, list(shards), api, fail
        self.lock, self.waiting, self.leased, self.acked, self.returned = threading.Lock(), list(range(len(self.shards))), {}, [], []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def answer(self, method, path, body):
        if self.fail is not None:
            return self.fail, {"error": "it is the test's will"}
        parts = path.split("?")[0].strip("/").split("/")
        with self.lock:
            if parts[-1] == "cursor":
                query = dict(urllib.parse.parse_qsl(path.partition("?")[2]))
                self.cursors.append((method, query))
                if query.get("beginning", "true") != "true" and query["beginning"] != "first-2-abc":
                    return 422, {"error": "it does not begin so"}
                if "beginning" in query and self.listing:
                    return 200, {"manifest": "first-2-abc", "part": "0/1", "epoch": 0, "settled": {"0": [[p, p] for p in sorted(self.acked)]}}
                if self.listing:
                    self.listing -= 1
                    return 503, {"error": "its source is still being listed"}
                if method == "PUT":
                    settled = {p for c in (body if isinstance(body, list) else [body]) for a, b in c["settled"].get("0", []) for p in range(a, b + 1)}
                    self.waiting, self.leased, self.acked = [p for p in range(len(self.shards)) if p not in settled], {}, sorted(settled)
                return 200, {"manifest": self.manifest, "part": "0/1", "epoch": 0, "settled": {"0": [[p, p] for p in sorted(self.acked)]}}
            if parts[-1] == "status":
                return 200, {"ready": self.ready, "outputs": [{"output": name} for name in self.outputs]}
            if parts[-1] == "commit":
                self.commits.append(body)
                return 202, {}
            if parts[1] == "outputs":
                return (200, self.outputs[parts[2]]) if parts[2] in self.outputs else (404, {"error": "no such output"})
            if parts[-1] == "lease":
                if not self.waiting:
                    return 200, {"end": True, "epoch": 0}
                at = self.waiting.pop(0)
                self.leased[f"l{at}"] = at
                return 200, {"lease": f"l{at}", "epoch": 0, "pos": at, "path": self.shards[at], "attempt": 1}
            at = self.leased.pop(parts[-2], None)
            if at is None:
                return 410, {"error": "no such lease"}
            if parts[-1] == "ack":
                self.acked.append(at)
            else:
                self.returned.append(at)
                self.waiting.insert(0, at)
            return 204, None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        code, answer = self.server.answer(self.command, self.path, json.loads(body) if body else None)
        text = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(code)
        if self.server.api is not None:
            self.send_header("Stager-Api", self.server.api)
        if code == 503 and self.server.fail is None:
            self.send_header("Stager-Wait-Cause", "listing")
        if code != 204:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked was killed
            self.wfile.write(text)

    do_GET = do_PUT = do_POST

    def address_string(self):
        return "unix"

    def log_message(self, *_):
        pass


def lines(directory, name, count):
    """Writes a shard of JSON lines, and returns its path."""
    path = os.path.join(directory, name)
    with open(path, "w") as file:
        file.writelines(json.dumps({"name": f"{name}:{i}"}) + "\n" for i in range(count))
    return path


def tar(directory, name, files):
    """Writes a tar archive, and returns its path."""
    path = os.path.join(directory, name)
    with tarfile.open(path, "w") as archive:
        for inside, content in files.items():
            entry = tarfile.TarInfo(inside)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return path
