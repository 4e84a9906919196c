"""A small hub on loopback that can misbehave on purpose: two servers, the hub and a store on another port that large files redirect to.

    with Hub() as hub:
        hub.add("org/name", {"config.json": b"{}", "model.safetensors": Large(b"...")})
        hub.fault("GET", "model.safetensors", cut(1000), times=1)

Paths, headers and JSON are those of the public hub's HTTP API. Every request is recorded in hub.requests."""

import hashlib
import http.server
import json
import re
import socket
import threading
import urllib.parse
from dataclasses import dataclass, field


class Large(bytes):
    """A file that is stored elsewhere and named by its sha256."""


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def blob_hash(data):
    return hashlib.sha256(data).hexdigest() if isinstance(data, Large) else git_hash(data)


@dataclass
class Request:
    server: str  # "hub" or "store"
    method: str
    path: str  # with its query
    headers: dict

    @property
    def range(self):
        return self.headers.get("range")

    @property
    def token(self):
        return self.headers.get("authorization")


# --- faults: functions (handler, data, start, send) that answer in place of a right reply; None as a result: go on as usual --------------


def status(code, message="", headers=None):
    """That status, with the hub's header for the reason."""

    def act(handler, **_):
        extra = dict(headers or {})
        if message:
            extra["X-Error-Message"] = message
        handler.answer(code, extra, b"")
        return True

    return act


def cut(after):
    """The connection breaks after that many bytes of the body."""

    def act(handler, data, start, headers, code):
        handler.answer(code, {**headers, "Content-Length": str(len(data))}, data[:after], raw=True)
        handler.drop()
        return True

    return act


def stall(after, seconds):
    """Nothing comes for a while after that many bytes."""

    def act(handler, data, start, headers, code):
        handler.answer(code, {**headers, "Content-Length": str(len(data))}, data[:after], raw=True)
        handler.wfile.flush()
        handler.hub.released.wait(seconds)
        handler.drop()
        return True

    return act


def corrupt(position):
    """One wrong byte of the file."""

    def act(handler, data, start, headers, code):
        wrong = bytearray(data)
        if start <= position < start + len(data):
            wrong[position - start] ^= 1
        handler.answer(code, headers, bytes(wrong))
        return True

    return act


def replaced(body, **changed):
    """Another body, and headers as given (None removes one)."""

    def act(handler, data, start, headers, code):
        merged = {**headers, **{name.replace("_", "-"): value for name, value in changed.items()}}
        handler.answer(code, {k: v for k, v in merged.items() if v is not None}, body, raw="Content_Length" in changed)
        if "Content_Length" in changed:
            handler.drop()
        return True

    return act


def slow(piece, pause):
    """Small pieces with pauses between."""

    def act(handler, data, start, headers, code):
        handler.answer(code, {**headers, "Content-Length": str(len(data))}, b"", raw=True)
        for at in range(0, len(data), piece):
            handler.wfile.write(data[at : at + piece])
            handler.wfile.flush()
            if handler.hub.released.wait(pause):
                break
        return True

    return act


def without_ranges(handler, data, start, headers, code):
    """The whole file, whatever was asked for."""
    whole = handler.whole
    handler.answer(200, {k: v for k, v in headers.items() if k != "Content-Range"}, whole)
    return True


@dataclass
class Repo:
    files: dict
    commit: str
    refs: dict = field(default_factory=dict)
    gated: bool = False  # listed for everybody, readable with the token
    private: bool = False  # nothing without the token
    tree: bool = True
    page: int = 1000
    extra: dict = field(default_factory=dict)  # fields that override the model's JSON
    entries: list = None  # tree entries in place of the true ones


class Hub:
    token = "hf_ThisIsASecretOfTheTests"

    def __init__(self, tls=None):
        """`tls`: server-side ssl contexts by server name; the others speak plain HTTP."""
        self.tls = tls or {}
        self.repos, self.requests, self.faults = {}, [], []
        self.released = threading.Event()
        self.lock = threading.Lock()
        self.redirect_headers = {}
        self.relative_redirects = False
        self.servers = {}
        for name in ("hub", "store"):
            handler = type("Handler", (Handler,), {"hub": self, "name": name})
            server = Server(("127.0.0.1", 0), handler)
            if name in self.tls:
                server.socket = self.tls[name].wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
            self.servers[name] = server

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        for server in self.servers.values():
            server.shutdown()
            server.server_close()

    def url(self, name="hub"):
        return f"{'https' if name in self.tls else 'http'}://127.0.0.1:{self.servers[name].server_address[1]}"

    def add(self, name, files, **more):
        commit = more.pop("commit", None) or hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.repos[name] = repo = Repo(files, commit, **more)
        repo.refs.setdefault("main", commit)
        return repo

    def fault(self, method, path, act, times=1000000, server=None):
        """The next `times` requests of that method whose path contains `path` get `act`."""
        self.faults.append([method, path, act, times, server])

    def take_fault(self, server, method, path):
        with self.lock:
            for each in self.faults:
                if each[0] == method and each[1] in path and each[3] > 0 and each[4] in (None, server):
                    each[3] -= 1
                    return each[2]
        return None

    def asked(self, method, text, server=None):
        return [r for r in self.requests if r.method == method and text in r.path and server in (None, r.server)]


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # clients that hang up are part of the tests


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub = None
    name = ""
    whole = b""

    def log_message(self, *_):
        pass

    def answer(self, code, headers, body, raw=False):
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        if not raw and "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def drop(self):
        self.close_connection = True
        self.wfile.flush()
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        hub = self.hub
        with hub.lock:
            headers = {name.lower(): value for name, value in self.headers.items()}
            hub.requests.append(Request(self.name, self.command, self.path, headers))
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        if self.name == "store":
            return self.send_file(hub.store_data(path))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(revision|tree)/(.+)", urllib.parse.unquote(path)):
            return self.api(*match.groups(), urllib.parse.parse_qs(query))
        if re.fullmatch(r"/api/models/[^/]+/[^/]+", path) and (act := self.hub.take_fault(self.name, self.command, path)):
            if act(self, data=b"", start=0, headers={}, code=200):
                return None
        if match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            return self.resolve(*match.groups())
        if match := re.fullmatch(r"/cached/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path):
            repo = hub.repos[match[1]]
            return self.send_file(repo.files[match[3]], self.file_headers(repo, repo.files[match[3]]))
        return self.answer(404, {}, b"Not Found")

    def allowed(self, repo, for_files):
        known = self.headers.get("Authorization") == f"Bearer {self.hub.token}"
        if repo is None or (repo.private and not known):
            self.answer(401, {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}, b"")
            return False
        if self.headers.get("Authorization") and not known:
            self.answer(401, {"X-Error-Message": "Invalid credentials in Authorization header"}, b"")
            return False
        if for_files and repo.gated and not known:
            self.answer(401, {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to model is restricted"}, b"")
            return False
        return True

    def commit_of(self, repo, revision):
        commit = repo.refs.get(revision) or (repo.commit if repo.commit.startswith(revision) and len(revision) > 4 else None)
        if commit is None:
            self.answer(404, {"X-Error-Code": "RevisionNotFound", "X-Error-Message": f"Invalid rev id: {revision}"}, b"")
        return commit

    def api(self, name, kind, revision, query):
        repo = self.hub.repos.get(name)
        if act := self.hub.take_fault(self.name, self.command, self.path):
            if act(self, data=b"", start=0, headers={}, code=200):
                return None
        if not self.allowed(repo, False) or (commit := self.commit_of(repo, revision)) is None:
            return None
        if kind == "revision":
            body = {"id": name, "modelId": name, "sha": commit, "private": False, "gated": False, "tags": [], "downloads": 0,
                    "siblings": [{"rfilename": path} for path in repo.files], **repo.extra}
            return self.send_json(body)
        if not repo.tree:
            return self.answer(404, {}, b"Not Found")
        entries = repo.entries if repo.entries is not None else [self.entry(p, d) for p, d in repo.files.items()]
        start = int(query.get("cursor", ["0"])[0])
        headers = {}
        if start + repo.page < len(entries):
            headers["Link"] = f'<{self.hub.url()}/api/models/{name}/tree/{commit}?recursive=true&cursor={start + repo.page}>; rel="next"'
        return self.send_json(entries[start : start + repo.page], headers)

    def entry(self, path, data):
        entry = {"type": "file", "path": path, "size": len(data), "oid": git_hash(data)}
        if isinstance(data, Large):
            entry["lfs"] = {"oid": blob_hash(data), "size": len(data), "pointerSize": 134}
        return entry

    def send_json(self, value, headers=None):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.answer(200, {"Content-Type": "application/json", **(headers or {})}, body)

    def file_headers(self, repo, data):
        return {"ETag": f'"{blob_hash(data)}"', "X-Repo-Commit": repo.commit}

    def resolve(self, name, revision, path):
        repo = self.hub.repos.get(name)
        if not self.allowed(repo, True) or (commit := self.commit_of(repo, revision)) is None:
            return None
        if path not in repo.files:
            return self.answer(404, {"X-Error-Code": "EntryNotFound"}, b"Entry not found")
        data = repo.files[path]
        headers = self.file_headers(repo, data)
        if isinstance(data, Large):
            where = f"{self.hub.url('store')}/{blob_hash(data)}/{path}?X-Amz-Signature=secret-of-the-store"
            headers.update({"ETag": '"etag-of-the-redirect"', "X-Linked-Etag": headers["ETag"], "X-Linked-Size": str(len(data)), "Location": where})
            headers.update(self.hub.redirect_headers)
            act = self.hub.take_fault("hub", self.command, self.path)
            if act and act(self, data=b"", start=0, headers=headers, code=302):
                return None
            return self.answer(302, {k: v for k, v in headers.items() if v is not None}, b"")
        if self.hub.relative_redirects:
            return self.answer(307, {"Location": f"/cached/{name}/{commit}/{urllib.parse.quote(path)}"}, b"")
        return self.send_file(data, headers)

    def send_file(self, data, headers=None):
        if data is None:
            return self.answer(404, {}, b"")
        self.whole = data
        headers = {"Accept-Ranges": "bytes", **(headers or {"ETag": '"etag-of-the-store"'})}
        code, start, part = 200, 0, self.whole
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            start, end = int(match[1]), int(match[2] or len(data) - 1)
            if start >= len(data):
                return self.answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
            end = min(end, len(data) - 1)
            code, part = 206, self.whole[start : end + 1]
            headers["Content-Range"] = f"bytes {start}-{end}/{len(data)}"
        act = self.hub.take_fault(self.name, self.command, self.path)
        if act and act(self, data=part, start=start, headers=headers, code=code):
            return None
        if self.command == "HEAD":
            return self.answer(code, {**headers, "Content-Length": str(len(part))}, b"")
        return self.answer(code, headers, part)


def store_data(self, path):
    digest = path.split("/")[1]
    for repo in self.repos.values():
        for data in repo.files.values():
            if isinstance(data, Large) and blob_hash(data) == digest:
                return data
    return None


Hub.store_data = store_data
