"""An HTTP server in this process that serves files, ranges, errors and broken connections."""

import http.server
import socket
import threading
from contextlib import contextmanager


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        begin = 0
        if asked := self.headers.get("Range"):
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
        server.asked.append(begin)
        if self.path not in server.files or server.fail_with:
            code = server.fail_with or 404
            self.send_error(code)
            return
        content = server.files[self.path]
        if begin > len(content) or (asked and begin == len(content)):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if asked and server.ranges:
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        else:
            begin = 0
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        end = len(content) if server.cut_after is None else begin + server.cut_after
        self.wfile.write(content[begin:end])

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {}
        self.asked = []  # the offsets that were asked for
        self.fail_with = None
        self.cut_after = None  # bytes of an answer before the connection is dropped
        self.ranges = True

    def url(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


@contextmanager
def running_server():
    """Run a server in a thread."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join(timeout=5)
        server.server_close()


def unreachable():
    """Return an address at which nothing listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/f"
