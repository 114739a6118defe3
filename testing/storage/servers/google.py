"""Google Cloud Storage on 127.0.0.1, at the port that is given: as much of its XML API as crate `object_store` uses.

Objects are in memory. Whoever has the token `test` may do everything. Conditions are judged and objects replaced in one
step. Pages of lists are short, so that whoever lists has to go on.
"""

import hashlib
import itertools
import sys
import threading
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

PAGE = 10
# All parts of an upload but the last one.
MIN_PART_BYTES = 5 << 20


class Refused(Exception):
    def __init__(self, status, code):
        super().__init__(code)
        self.status, self.code = status, code


@dataclass
class Object:
    data: bytes
    generation: int
    written: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def tag(self):
        return f'"{hashlib.md5(self.data).hexdigest()}"'

    def headers(self):
        return {
            "ETag": self.tag,
            "Last-Modified": format_datetime(self.written, usegmt=True),
            "x-goog-generation": str(self.generation),
        }


class Store:
    """Buckets and uploads. One request at a time."""

    def __init__(self):
        self.turn = threading.Lock()
        self.numbers = itertools.count(1)
        self.buckets = {}
        self.uploads = {}

    def bucket(self, name):
        if name not in self.buckets:
            raise Refused(404, "NoSuchBucket")
        return self.buckets[name]

    def object(self, bucket, name):
        objects = self.bucket(bucket)
        if name not in objects:
            raise Refused(404, "NoSuchKey")
        return objects[name]

    def put(self, bucket, name, data, generation):
        objects = self.bucket(bucket)
        found = objects[name].generation if name in objects else 0
        if generation is not None and int(generation) != found:
            raise Refused(412, "PreconditionFailed")
        objects[name] = Object(data, next(self.numbers))
        return objects[name]

    def delete(self, bucket, name):
        self.object(bucket, name)
        del self.buckets[bucket][name]

    def begin(self, bucket, name):
        self.bucket(bucket)
        upload = str(next(self.numbers))
        self.uploads[upload] = (bucket, name, {})
        return upload

    def parts(self, upload, bucket, name):
        if upload not in self.uploads or self.uploads[upload][:2] != (bucket, name):
            raise Refused(404, "NoSuchUpload")
        return self.uploads[upload][2]

    def complete(self, upload, bucket, name, named):
        parts = self.parts(upload, bucket, name)
        if any(number not in parts or parts[number].tag != tag for number, tag in named):
            raise Refused(400, "InvalidPart")
        numbers = [number for number, _ in named]
        if numbers != sorted(set(numbers)):
            raise Refused(400, "InvalidPartOrder")
        whole = [parts[number].data for number in numbers]
        if any(len(data) < MIN_PART_BYTES for data in whole[:-1]):
            raise Refused(400, "EntityTooSmall")
        del self.uploads[upload]
        return self.put(bucket, name, b"".join(whole), None)

    def page(self, bucket, prefix, delimiter, after):
        """Objects, prefixes, and from where to go on, if there are more."""
        objects, prefixes, last = [], [], None
        for name in sorted(self.bucket(bucket)):
            if not name.startswith(prefix) or name <= after or (prefixes and name.startswith(prefixes[-1])):
                continue
            end = name.find(delimiter, len(prefix)) if delimiter else -1
            folder = name[: end + len(delimiter)] if end >= 0 else None
            if folder is not None and after.startswith(folder):
                continue
            if len(objects) + len(prefixes) == PAGE:
                return objects, prefixes, last
            if folder is None:
                objects.append((name, self.buckets[bucket][name]))
            else:
                prefixes.append(folder)
            last = name if folder is None else folder
        return objects, prefixes, None


STORE = Store()


def span(header, length):
    """Where a range of so many bytes begins and ends."""
    first, last = header.removeprefix("bytes=").split("-")
    if not first:
        return max(length - int(last), 0), length
    if int(first) >= length:
        raise Refused(416, "InvalidRange")
    return int(first), min(int(last) + 1, length) if last else length


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format, *arguments):
        pass

    def reply(self, status, body=b"", headers=None):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        # What a successful HEAD would have.
        if "Content-Length" not in (headers or {}):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def carry_out(self):
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        bucket, _, name = url.path.removeprefix("/").partition("/")
        # Read before its turn comes: nobody waits for a client that sends slowly.
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if self.headers.get("Authorization") != "Bearer test":
                raise Refused(401, "AuthenticationRequired")
            with STORE.turn:
                answer = self.answer(unquote(bucket), unquote(name), query, body)
        except Refused as refused:
            text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{refused.code}</Code></Error>"
            answer = (refused.status, text.encode(), {"Content-Type": "application/xml"})
        self.reply(*answer)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = carry_out

    def answer(self, bucket, name, query, body):
        if not name:
            return self.of_bucket(bucket, query)
        if "uploads" in query or "uploadId" in query:
            return self.of_upload(bucket, name, query, body)
        if self.command == "PUT":
            put = STORE.put(bucket, name, body, self.headers.get("x-goog-if-generation-match"))
            return 200, b"", put.headers()
        if self.command == "DELETE":
            STORE.delete(bucket, name)
            return 204, b"", None
        found = STORE.object(bucket, name)
        if self.command == "HEAD":
            return 200, b"", found.headers() | {"Content-Length": str(len(found.data))}
        if "Range" not in self.headers:
            return 200, found.data, found.headers()
        start, end = span(self.headers["Range"], len(found.data))
        shown = {"Content-Range": f"bytes {start}-{end - 1}/{len(found.data)}"}
        return 206, found.data[start:end], found.headers() | shown

    def of_bucket(self, bucket, query):
        if self.command == "PUT":
            STORE.buckets.setdefault(bucket, {})
            return 200, b"", None
        if self.command != "GET" or query.get("list-type") != "2":
            raise Refused(400, "InvalidArgument")
        after = query.get("continuation-token") or query.get("start-after", "")
        objects, prefixes, last = STORE.page(bucket, query.get("prefix", ""), query.get("delimiter", ""), after)
        text = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(found.data)}</Size><ETag>{escape(found.tag)}</ETag>"
            f"<LastModified>{found.written.isoformat()}</LastModified></Contents>"
            for name, found in objects
        )
        text += "".join(f"<CommonPrefixes><Prefix>{escape(prefix)}</Prefix></CommonPrefixes>" for prefix in prefixes)
        if last is not None:
            text += f"<NextContinuationToken>{escape(last)}</NextContinuationToken>"
        return 200, f"<ListBucketResult>{text}</ListBucketResult>".encode(), {"Content-Type": "application/xml"}

    def of_upload(self, bucket, name, query, body):
        if "uploads" in query:
            text = f"<UploadId>{STORE.begin(bucket, name)}</UploadId>"
            return 200, f"<InitiateMultipartUploadResult>{text}</InitiateMultipartUploadResult>".encode(), None
        upload = query["uploadId"]
        if self.command == "PUT":
            part = Object(body, next(STORE.numbers))
            STORE.parts(upload, bucket, name)[int(query["partNumber"])] = part
            return 200, b"", {"ETag": part.tag}
        if self.command == "DELETE":
            STORE.parts(upload, bucket, name)
            del STORE.uploads[upload]
            return 204, b"", None
        named = [(int(part.findtext("PartNumber")), part.findtext("ETag")) for part in ElementTree.fromstring(body)]
        put = STORE.complete(upload, bucket, name, named)
        text = f"<CompleteMultipartUploadResult><ETag>{escape(put.tag)}</ETag></CompleteMultipartUploadResult>"
        return 200, text.encode(), put.headers()


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
