"""An object store that costs next to nothing: enough of S3 for a client to be measured instead of its server.

    python bench/load/objects.py PORT_FILE

It keeps objects in memory as they come from the socket, checks no signature and no checksum, and answers what boto3,
s3fs and obstore ask: buckets, objects, ranges, parts, lists, `If-None-Match: *`. The port goes into the named file.
"""

from __future__ import annotations

import itertools
import re
import socket
import socketserver
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

LONGEST_HEAD = 65536
MODIFIED = "Thu, 01 Jan 2026 00:00:00 GMT"
ISO = "2026-01-01T00:00:00.000Z"


@dataclass
class Kept:
    """An object: its bytes in the pieces in which they came."""

    pieces: list[memoryview]
    etag: str

    @property
    def size(self) -> int:
        return sum(len(piece) for piece in self.pieces)

    def range(self, first: int, last: int) -> Iterator[memoryview]:
        """Yield the bytes from `first` to `last`, both included."""
        at = 0
        for piece in self.pieces:
            begin, end = max(first - at, 0), min(last + 1 - at, len(piece))
            if begin < end:
                yield piece[begin:end]
            at += len(piece)


@dataclass
class Store:
    """All objects by path, and the uploads that are under way."""

    objects: dict[str, Kept] = field(default_factory=dict)
    uploads: dict[str, dict[int, Kept]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def etag(self) -> str:
        return f'"{next(self.numbers):032x}"'


class Handler(socketserver.BaseRequestHandler):
    """One connection, with as many requests as the client likes."""

    server: Server

    def handle(self) -> None:
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        rest = b""
        while True:
            while b"\r\n\r\n" not in rest:
                more = self.request.recv(LONGEST_HEAD)
                if not more:
                    return
                rest += more
            head, _, rest = rest.partition(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ", 2)
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            length = int(headers.get("content-length", "0"))
            if headers.get("expect", "").lower() == "100-continue" and len(rest) < length:
                self.request.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            body = memoryview(bytearray(length))
            have = min(len(rest), length)
            body[:have], rest = rest[:have], rest[have:]
            while have < length:
                got = self.request.recv_into(body[have:])
                if not got:
                    return
                have += got
            self.answer(method, target, headers, body)

    def reply(self, status: str, text: str = "", **headers: str) -> None:
        """Send a short reply."""
        sent = {"Content-Length": str(len(text.encode()))}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        lines = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        self.request.sendall(f"HTTP/1.1 {status}\r\n{lines}\r\n{text}".encode())

    def answer(self, method: str, target: str, headers: dict[str, str], body: memoryview) -> None:
        split = urlsplit(target)
        path, query = unquote(split.path).strip("/"), parse_qs(split.query, keep_blank_values=True)
        store = self.server.store
        is_bucket = "/" not in path
        match method:
            case "POST" if "uploads" in query:
                with store.lock:
                    upload = f"upload{next(store.numbers)}"
                    store.uploads[upload] = {}
                bucket, _, key = path.partition("/")
                ids = f"<Bucket>{escape(bucket)}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
                self.reply("200 OK", _xml("InitiateMultipartUploadResult", ids), Content_Type="application/xml")
            case "POST" if "uploadId" in query:
                self._complete(path, query["uploadId"][0], headers)
            case "POST" if "delete" in query:
                keys = re.findall(r"<Key>(.*?)</Key>", bytes(body).decode())
                for key in keys:
                    store.objects.pop(f"{path}/{unescape(key)}", None)
                said = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
                self.reply("200 OK", _xml("DeleteResult", said), Content_Type="application/xml")
            case "PUT" if "uploadId" in query:
                with store.lock:
                    kept = Kept([body], store.etag())
                    store.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = kept
                self.reply("200 OK", ETag=kept.etag)
            case "PUT" if is_bucket:
                self.reply("200 OK")
            case "PUT" if "x-amz-copy-source" in headers:
                kept = store.objects[unquote(headers["x-amz-copy-source"]).strip("/")]
                store.objects[path] = kept
                said = f"<ETag>{kept.etag}</ETag><LastModified>{ISO}</LastModified>"
                self.reply("200 OK", _xml("CopyObjectResult", said), Content_Type="application/xml")
            case "PUT":
                self._put(path, [body], headers)
            case "GET" | "HEAD" if is_bucket:
                self._list(path, query, method)
            case "GET" | "HEAD":
                self._get(method, path, headers)
            case _:
                store.objects.pop(path, None)
                self.reply("204 No Content")

    def _complete(self, path: str, upload: str, headers: dict[str, str]) -> None:
        parts = self.server.store.uploads.pop(upload)
        pieces = [piece for _, part in sorted(parts.items()) for piece in part.pieces]
        self._put(path, pieces, headers, whole=True)

    def _put(self, path: str, pieces: list[memoryview], headers: dict[str, str], *, whole: bool = False) -> None:
        store = self.server.store
        with store.lock:
            if headers.get("if-none-match") == "*" and path in store.objects:
                self.reply("412 Precondition Failed", _xml("Error", "<Code>PreconditionFailed</Code>"))
                return
            kept = store.objects[path] = Kept(pieces, store.etag())
        text = _xml("CompleteMultipartUploadResult", f"<ETag>{kept.etag}</ETag>") if whole else ""
        self.reply("200 OK", text, ETag=kept.etag)

    def _list(self, bucket: str, query: dict[str, list[str]], method: str) -> None:
        prefix = query.get("prefix", [""])[0]
        found = sorted((path.partition("/")[2], kept) for path, kept in list(self.server.store.objects.items()))
        items, folders = "", {}
        for key, kept in found:
            if not key.startswith(prefix):
                continue
            if query.get("delimiter", [""])[0] == "/" and "/" in key[len(prefix) :]:
                folders[prefix + key[len(prefix) :].partition("/")[0] + "/"] = True
                continue
            items += (
                f"<Contents><Key>{escape(key)}</Key><LastModified>{ISO}</LastModified><ETag>{kept.etag}</ETag>"
                f"<Size>{kept.size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
        items += "".join(f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in folders)
        said = f"<Name>{escape(bucket)}</Name><IsTruncated>false</IsTruncated>{items}"
        text = "" if method == "HEAD" else _xml("ListBucketResult", said)
        self.reply("200 OK", text, Content_Type="application/xml")

    def _get(self, method: str, path: str, headers: dict[str, str]) -> None:
        kept = self.server.store.objects.get(path)
        if kept is None:
            text = "" if method == "HEAD" else _xml("Error", "<Code>NoSuchKey</Code><Message>no such key</Message>")
            self.reply("404 Not Found", text)
            return
        first, last, status = 0, kept.size - 1, "200 OK"
        lines = [f"ETag: {kept.etag}", f"Last-Modified: {MODIFIED}", "Accept-Ranges: bytes"]
        if headers.get("range", "").startswith("bytes="):
            begin, _, end = headers["range"].removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end) if end else kept.size - 1, kept.size - 1)
            status = "206 Partial Content"
            lines.append(f"Content-Range: bytes {first}-{last}/{kept.size}")
        lines.append(f"Content-Length: {last - first + 1}")
        self.request.sendall(_lines([f"HTTP/1.1 {status}", *lines]))
        if method == "GET":
            for piece in kept.range(first, last):
                self.request.sendall(piece)


class Server(socketserver.ThreadingTCPServer):
    """Serves each connection in a thread: reading and writing large bodies holds no lock of Python's."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.store = Store()


def _lines(lines: list[str]) -> bytes:
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _xml(name: str, inside: str) -> str:
    space = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
    return f'<?xml version="1.0" encoding="UTF-8"?><{name} {space}>{inside}</{name}>'


def main() -> None:
    """Serve until the process is ended."""
    with Server() as server:
        Path(sys.argv[1]).write_text(str(server.server_address[1]))
        server.serve_forever()


if __name__ == "__main__":
    main()
