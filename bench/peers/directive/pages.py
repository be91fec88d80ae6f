"""Serves the lines of a file as pages of a JSON API: GET /?offset=N&limit=M. Says its port on the first line."""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

with open(sys.argv[1], "rb") as file:
    LINES = file.read().splitlines()


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        offset, limit = int(query.get("offset", ["0"])[0]), int(query["limit"][0])
        body = b'{"items":[' + b",".join(LINES[offset : offset + limit]) + b"]}"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
print(server.server_port, flush=True)
server.serve_forever()
