"""moto's S3 on 127.0.0.1, at the port that is given. It carries out one request at a time.

moto looks whether an object is there and puts it in two steps: of two puts with `If-None-Match: *` at the same time
both may succeed, which S3 rules out.
"""

import io
import sys
import threading

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple


class OneAtATime:
    """Nobody waits for a client that sends slowly: a request is read before its turn comes."""

    def __init__(self, application):
        self.application = application
        self.turn = threading.Lock()

    def __call__(self, environ, start_response):
        body = environ["wsgi.input"]
        is_chunked = environ.get("wsgi.input_terminated", False)
        whole = body.read() if is_chunked else body.read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(whole)
        with self.turn:
            reply = self.application(environ, start_response)
            try:
                return list(reply)
            finally:
                if hasattr(reply, "close"):
                    reply.close()


run_simple(
    "127.0.0.1",
    int(sys.argv[1]),
    OneAtATime(DomainDispatcherApplication(create_backend_app)),
    threaded=True,
)
