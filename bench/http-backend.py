"""`git http-backend` behind a CGI server that streams: what the gateway is measured against.

    python3 http-backend.py ROOT

Serves the repositories below ROOT at a free port of 127.0.0.1, and writes the port as its first line. One thread and
one process a request; bodies are passed on as they come, both ways, and never held. Everybody may push: for
measurements only.
"""

import os
import socketserver
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler

CHUNK = 1 << 16
HEADER_END = b"\r\n\r\n"


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 128


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    rbufsize = CHUNK
    root = ""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.serve()

    def do_POST(self):
        self.serve()

    def serve(self):
        self.close_connection = True
        backend = subprocess.Popen(
            ["git", "http-backend"],
            env=self.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        feeder = threading.Thread(target=self.feed, args=(backend.stdin,), daemon=True)
        feeder.start()
        self.answer(backend.stdout.fileno())
        backend.stdout.close()
        backend.wait()
        feeder.join()

    def environment(self):
        path, _, query = self.path.partition("?")
        variables = {
            "PATH": os.environ["PATH"],
            "HOME": self.root,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_PROJECT_ROOT": self.root,
            "GIT_HTTP_EXPORT_ALL": "1",
            "GATEWAY_INTERFACE": "CGI/1.1",
            "SERVER_PROTOCOL": "HTTP/1.1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REMOTE_ADDR": self.client_address[0],
        }
        for header, variable in [
            ("Content-Type", "CONTENT_TYPE"),
            ("Content-Length", "CONTENT_LENGTH"),
            ("Content-Encoding", "HTTP_CONTENT_ENCODING"),
            ("Git-Protocol", "GIT_PROTOCOL"),
        ]:
            value = self.headers.get(header)
            if value is not None:
                variables[variable] = value
        return variables

    def feed(self, stdin):
        """Passes the body of the request on to git."""
        try:
            if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    self.copy(size, stdin)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                self.copy(int(self.headers.get("Content-Length", 0)), stdin)
        except BrokenPipeError:
            pass  # git has read enough; its answer tells why
        finally:
            stdin.close()

    def copy(self, size, stdin):
        while size:
            data = self.rfile.read1(min(size, CHUNK))
            if not data:
                raise EOFError("the client is gone")
            size -= len(data)
            left = memoryview(data)
            while left:
                left = left[stdin.write(left) :]

    def answer(self, stdout):
        """Makes an HTTP answer of what git says."""
        said = b""
        while HEADER_END not in said:
            data = os.read(stdout, CHUNK)
            if not data:
                break
            said += data
        head, _, body = said.partition(HEADER_END)
        status, headers = b"200 OK", []
        for header in head.split(b"\r\n"):
            if header.lower().startswith(b"status:"):
                status = header[len(b"status:") :].strip()
            elif header:
                headers.append(header)
        lines = [b"HTTP/1.1 " + status, *headers, b"Connection: close"]
        self.connection.sendall(b"\r\n".join(lines) + HEADER_END + body)
        while data := os.read(stdout, CHUNK):
            self.connection.sendall(data)


def main():
    Handler.root = os.path.abspath(sys.argv[1])
    with Server(("127.0.0.1", 0), Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
