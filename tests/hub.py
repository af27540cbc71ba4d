# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
A small Hub on the loopback interface for huggingface_hub: it creates repositories, accepts commits and serves files
over real HTTP. It follows the protocol of the client, and takes all files without LFS.
"""

import base64
import hashlib
import json
import re
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote


USER = "user"
WRITER = "hf_writer"


def oid_of(content):
    """The hash of git."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@dataclass(frozen=True)
class Commit:
    message: str
    files: dict[str, bytes]
    number: int

    @property
    def oid(self):
        return hashlib.sha1(f"{self.number} {self.message}".encode()).hexdigest()


@dataclass
class Repo:
    private: bool
    # Commits of each branch, the oldest first; as on the Hub, a new repository already has one.
    branches: dict[str, list[Commit]] = field(
        default_factory=lambda: {"main": [Commit("initial commit", {".gitattributes": b""}, 0)]}
    )


class Refusal(Exception):
    def __init__(self, status, message, code="", **content):
        super().__init__(message)
        self.status, self.code, self.content = status, code, {"error": message, **content}


class Hub(ThreadingHTTPServer):
    """Serves in a `with` block. `repos` has the published files, `requests` all requests."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.repos, self.requests = {}, []

    def __enter__(self):
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()


ROUTES = []


def route(method, pattern):
    pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", pattern.replace("{repo}", "(?P<repo>[^/]+/[^/]+)"))

    def register(function):
        ROUTES.append((re.compile(f"{method} {pattern}"), function))
        return function

    return register


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        request = f"{self.command} {self.path.partition('?')[0]}"
        self.server.requests.append(request)
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            answer = self.find_route(request)
        except Refusal as refusal:
            headers = {"X-Error-Message": refusal.content["error"], "X-Error-Code": refusal.code}
            self.send(refusal.status, refusal.content, headers)
            return
        self.send(200, *answer)

    do_HEAD = do_POST = do_PUT = do_GET

    def log_message(self, *args):
        pass

    def find_route(self, request):
        for pattern, function in ROUTES:
            if match := pattern.fullmatch(request):
                answer = function(self, **{name: unquote(value) for name, value in match.groupdict("").items()})
                return answer if isinstance(answer, tuple) else (answer,)
        raise Refusal(404, f"the local Hub does not know {request}")

    def send(self, status, content, headers=None):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
        self.send_response(status)
        for name, value in {"Content-Length": len(content), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def token(self):
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ("", WRITER):
            raise Refusal(401, "Invalid credentials in Authorization header")
        return token

    def check_writer(self):
        token = self.token()
        if not token:
            raise Refusal(401, "Invalid username or password.")

    def repo(self, name):
        token, repo = self.token(), self.server.repos.get(name)
        if repo is None or (repo.private and not token):
            raise Refusal(404 if token else 401, "Repository not found", "RepoNotFound")
        return repo

    def commit_at(self, repo, revision):
        for commits in repo.branches.values():
            for commit in commits:
                if commit.oid == revision:
                    return commit
        if revision not in repo.branches:
            raise Refusal(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return repo.branches[revision][-1]

    @route("POST", "/api/repos/create")
    def create_repo(self):
        self.check_writer()
        wanted = json.loads(self.body)
        name = f"{wanted['organization'] or USER}/{wanted['name']}"
        url = f"{self.server.url}/{name}"
        if name in self.server.repos:
            raise Refusal(409, "You already created this model repo", url=url)
        self.server.repos[name] = Repo(private=wanted.get("visibility") == "private")
        return {"url": url}

    @route("POST", "/api/models/{repo}/branch/{branch}")
    def create_branch(self, repo, branch):
        self.check_writer()
        branches = self.repo(repo).branches
        branches[branch] = list(branches["main"])
        return {}

    @route("POST", "/api/validate-yaml")
    def validate_yaml(self):
        return {"errors": [], "warnings": []}

    @route("POST", "/api/models/{repo}/preupload/{revision}")
    def preupload(self, repo, revision):
        self.check_writer()
        files = self.commit_at(self.repo(repo), revision).files

        def describe(path):
            oid = oid_of(files[path]) if path in files else None
            return {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": oid}

        return {"files": [describe(file["path"]) for file in json.loads(self.body)["files"]]}

    @route("POST", "/api/models/{repo}/commit/{revision}")
    def commit(self, repo, revision):
        self.check_writer()
        name, repo = repo, self.repo(repo)
        files, message = dict(self.commit_at(repo, revision).files), ""
        for line in self.body.splitlines():
            key, value = json.loads(line).values()
            if key == "header":
                message = value["summary"]
            elif key == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif key == "deletedFile":
                del files[value["path"]]
        commit = Commit(message, files, sum(map(len, repo.branches.values())))
        repo.branches[revision] = [*repo.branches[revision], commit]
        return {"commitUrl": f"{self.server.url}/{name}/commit/{commit.oid}", "commitOid": commit.oid}

    @route("GET", "/api/models/{repo}(/revision/{revision})?")
    def model_info(self, repo, revision):
        name, repo = repo, self.repo(repo)
        commit = self.commit_at(repo, revision or "main")
        siblings = [{"rfilename": path} for path in commit.files]
        return {"id": name, "sha": commit.oid, "private": repo.private, "tags": [], "siblings": siblings}

    @route("GET", "/api/models/{repo}/tree/{revision}(/(?P<folder>.+))?")
    def tree(self, repo, revision, folder):
        files, start = self.commit_at(self.repo(repo), revision).files, f"{folder}/" if folder else ""
        paths = [path for path in files if path.startswith(start)]
        if not paths:
            raise Refusal(404, f"{folder} does not exist", "EntryNotFound")

        return [{"type": "file", "path": path, "size": len(files[path]), "oid": oid_of(files[path])} for path in paths]

    @route("(GET|HEAD)", "/{repo}/resolve/{revision}/(?P<path>.+)")
    def resolve(self, repo, revision, path):
        commit = self.commit_at(self.repo(repo), revision)
        if path not in commit.files:
            raise Refusal(404, f"{path} does not exist", "EntryNotFound")
        content = commit.files[path]
        return content, {"X-Repo-Commit": commit.oid, "ETag": f'"{oid_of(content)}"'}
