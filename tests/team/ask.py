"""Sends requests over the Unix socket of a team's box, as the user that runs this program: a JSON list of method, path
and body on standard input, the socket's path as its argument; prints a JSON list of status and answer."""

import http.client
import json
import socket
import sys


class Connection(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])


def ask(method: str, path: str, body: object = None, headers: object = None) -> list[object]:
    connection = Connection("localhost")
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    connection.request(method, path, json.dumps(body), {"content-type": kind, **dict(headers or {})})
    found = connection.getresponse()
    text = found.read().decode()
    return [found.status, json.loads(text) if text.startswith("{") else text]


print(json.dumps([ask(*each) for each in json.load(sys.stdin)]))
