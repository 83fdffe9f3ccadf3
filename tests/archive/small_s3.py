"""As much of an S3 server as reading needs: lists, heads and ranges of the files in a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_LIST = (
    '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>{bucket}</Name>'
    "<Prefix>{prefix}</Prefix><KeyCount>{count}</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"
    "{contents}</ListBucketResult>"
)
_OBJECT = (
    "<Contents><Key>{key}</Key><LastModified>2023-05-10T00:00:00.000Z</LastModified><ETag>&quot;0&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


@contextmanager
def small_s3(buckets: Path) -> Iterator[str]:
    """Serve the folders in ``buckets`` as buckets; yields what is to be put behind a URI."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            bucket, _, key = unquote(url.path).lstrip("/").partition("/")
            if not key and url.query:
                return self._list(bucket, parse_qs(url.query).get("prefix", [""])[0])
            path = buckets / bucket / key
            if key and not path.is_file():
                return self._answer(404, b"")
            self._answer(200, path.read_bytes() if key else b"")

        def _list(self, bucket: str, prefix: str) -> None:
            root = buckets / bucket
            keys = sorted(p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file())
            found = [key for key in keys if key.startswith(prefix)]
            contents = "".join(
                _OBJECT.format(key=escape(key), size=(root / key).stat().st_size) for key in found
            )
            text = _LIST.format(bucket=bucket, prefix=escape(prefix), count=len(found), contents=contents)
            self._answer(200, text.encode())

        def _answer(self, status: int, body: bytes) -> None:
            size = len(body)
            asked = self.headers.get("Range")
            if asked and status == 200:
                first, _, last = asked.removeprefix("bytes=").partition("-")
                end = min(int(last) + 1 if last else size, size)
                status, body = 206, body[int(first) : end]
            self.send_response(status)
            if status == 206:
                self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", '"0"')
            self.send_header("Last-Modified", formatdate(0, usegmt=True))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"?endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
    finally:
        server.shutdown()
        server.server_close()
