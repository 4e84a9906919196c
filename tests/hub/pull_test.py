#!/usr/bin/env python3
"""`sterling pull` against a hub look-alike with every fault that a hub, a network or a disk may have.

  pull_test.py --binary build/release/sterling [unittest arguments]
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
import unittest

import hub_server
from hub_server import Hub, Large, blob_hash, git_hash

BINARY = None
MIB = 1 << 20


def random_bytes(size, seed=1):
    return random.Random(seed).randbytes(size)


class PullTest(unittest.TestCase):
    def setUp(self):
        self.hub = self.enterContext(Hub())
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = self.home / "hub"
        self.repo = self.cache / "models--org--name"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "XDG_", "SSL_")) and not name.lower().endswith(("proxy", "_bundle"))
        }
        self.environment.update(HF_HOME=str(self.home), HF_ENDPOINT=self.hub.url(), HOME=str(self.home))

    def command(self, *arguments):
        return [BINARY, "pull", *arguments, "--retry-wait", "50ms", "--stall-timeout", "1"]

    def run_pull(self, *arguments, name="org/name", **environment):
        done = subprocess.run(
            self.command(name, *arguments), env={**self.environment, **environment}, capture_output=True, text=True, timeout=120
        )
        for secret in (Hub.token, "secret-of-the-store"):
            self.assertNotIn(secret, done.stdout + done.stderr)
        return done

    def pull(self, *arguments, **more):
        done = self.run_pull(*arguments, **more)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def fails(self, *arguments, says=(), code=1, **more):
        """The pull fails with one line that has these words; nothing says that the revision is there."""
        done = self.run_pull(*arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "" if "--json" not in arguments else done.stdout)
        last = done.stderr.strip().splitlines()[-1]
        self.assertTrue(last.startswith("sterling pull: "), done.stderr)
        for word in (says,) if isinstance(says, str) else says:
            self.assertIn(word, last)
        self.assertFalse((self.repo / "refs" / "main").exists())
        return done

    def complete(self, files, commit):
        """The cache holds exactly these files at main."""
        self.assertEqual((self.repo / "refs" / "main").read_text(), commit)
        snapshot = self.repo / "snapshots" / commit
        found = {str(p.relative_to(snapshot)): p for p in snapshot.rglob("*") if not p.is_dir()}
        self.assertEqual(sorted(found), sorted(files))
        for path, data in files.items():
            self.assertTrue(found[path].is_symlink())
            self.assertFalse(os.path.isabs(os.readlink(found[path])))
            self.assertEqual(found[path].resolve(), (self.repo / "blobs" / blob_hash(data)).resolve())
            self.assertEqual(found[path].read_bytes(), data)
        self.assertEqual(self.incomplete(), [])

    def incomplete(self):
        return sorted(p.name for p in self.repo.glob("blobs/*.incomplete"))

    def add(self, files=None, **more):
        self.files = files or {
            "config.json": b'{"model_type": "test"}',
            "empty": b"",
            "folder/deep/note \u00e9%23.txt": b"text",
            "model.safetensors": Large(random_bytes(300_000)),
        }
        return self.hub.add("org/name", self.files, **more)


class Plain(PullTest):
    def test_whole_revision(self):
        repo = self.add()
        done = self.pull()
        self.assertEqual(done.stdout, f"{self.repo}/snapshots/{repo.commit}\n")
        self.complete(self.files, repo.commit)
        self.assertFalse([r for r in self.hub.requests if r.token])

    def test_second_pull_fetches_nothing(self):
        repo = self.add()
        self.pull()
        self.hub.requests.clear()
        self.pull()
        self.assertFalse(self.hub.asked("GET", "/resolve/") + self.hub.asked("HEAD", "") + self.hub.asked("GET", "", "store"))
        self.complete(self.files, repo.commit)

    def test_json(self):
        repo = self.add()
        document = json.loads(self.pull("--json").stdout)
        self.assertEqual(document["commit"], repo.commit)
        self.assertEqual(document["path"], f"{self.repo}/snapshots/{repo.commit}")
        self.assertEqual(
            {f["path"]: (f["size"], f["blob"], f["state"]) for f in document["files"]},
            {path: (len(data), blob_hash(data), "downloaded") for path, data in self.files.items()},
        )
        total = sum(map(len, self.files.values()))
        self.assertEqual(document["bytes"], {"total": total, "missing": total, "received": total})
        document = json.loads(self.pull("--json").stdout)
        self.assertEqual({f["state"] for f in document["files"]}, {"cached"})
        self.assertEqual(document["bytes"], {"total": total, "missing": 0, "received": 0})

    def test_dry_run_writes_nothing(self):
        self.add()
        document = json.loads(self.pull("--dry-run", "--json").stdout)
        self.assertEqual({f["state"] for f in document["files"]}, {"missing"})
        self.assertIn("model.safetensors", self.pull("--dry-run").stdout)
        self.assertEqual(list(self.home.iterdir()), [])

    def test_include_and_exclude(self):
        repo = self.add({"a.json": b"1", "b.json": b"2", "c.txt": b"3", "sub/d.json": b"4", "model-1.bin": b"5"})
        self.pull("--include", "*.json", "--include", "model-[0-9].bin", "--exclude", "sub/", "--exclude=b.*")
        self.complete({"a.json": b"1", "model-1.bin": b"5"}, repo.commit)

    def test_no_file_chosen(self):
        self.add()
        self.fails("--include", "*.gguf", says=["none of the 4 files", "--include"])

    def test_revisions(self):
        repo = self.add(refs={"v1.0": "", "refs/pr/1": ""})
        repo.refs = {"main": repo.commit, "v1.0": repo.commit, "refs/pr/1": repo.commit}
        self.pull(name="org/name@v1.0")
        self.assertEqual((self.repo / "refs" / "v1.0").read_text(), repo.commit)
        self.assertFalse((self.repo / "refs" / "main").exists())
        self.pull("--revision", "refs/pr/1")
        self.assertEqual((self.repo / "refs" / "refs" / "pr" / "1").read_text(), repo.commit)
        self.pull(name=f"org/name@{repo.commit}")
        self.assertFalse((self.repo / "refs" / repo.commit).exists())

    def test_update_fetches_what_changed(self):
        old = self.add().commit
        self.pull()
        self.hub.requests.clear()
        changed = {**self.files, "config.json": b'{"model_type": "other"}'}
        repo = self.hub.add("org/name", changed)
        self.pull()
        self.complete(changed, repo.commit)
        self.assertNotEqual(repo.commit, old)
        self.assertEqual(self.hub.asked("GET", "", "store"), [])
        self.assertEqual(len(self.hub.asked("GET", "/resolve/")), 1)
        self.assertTrue((self.repo / "snapshots" / old / "config.json").exists())

    def test_same_bytes_twice(self):
        same = Large(random_bytes(50_000))
        repo = self.add({"a.bin": same, "b/c.bin": same})
        self.pull()
        self.complete(self.files, repo.commit)
        self.assertEqual(len(self.hub.asked("GET", "", "store")), 1)

    def test_pages_of_the_list(self):
        repo = self.add({f"file-{i:03}.txt": b"%d" % i for i in range(25)}, page=10)
        self.pull()
        self.complete(self.files, repo.commit)
        self.assertEqual(len(self.hub.asked("GET", "/tree/")), 3)

    def test_hub_without_a_tree(self):
        repo = self.add(tree=False)
        self.pull()
        self.complete(self.files, repo.commit)

    def test_mirror_with_less(self):
        repo = self.add()
        self.hub.fault("HEAD", "", hub_server.status(501))
        self.hub.fault("GET", "/revision/", hub_server.status(404))
        model = {"sha": repo.commit, "siblings": [{"rfilename": path} for path in self.files]}
        self.hub.fault("GET", "/api/models/org/name", lambda handler, **_: handler.path.endswith("/name") and (handler.send_json(model) or True))
        self.pull()
        self.complete(self.files, repo.commit)

    def test_relative_redirects(self):
        self.hub.relative_redirects = True
        repo = self.add(private=True)
        self.pull(HF_TOKEN=Hub.token)
        self.complete(self.files, repo.commit)
        self.assertTrue(self.hub.asked("GET", "/cached/")[0].token)

    def test_large_file_in_parallel_parts(self):
        repo = self.add({"model.safetensors": Large(random_bytes(41 * MIB + 12345))})
        self.pull("--jobs", "4")
        self.complete(self.files, repo.commit)
        ranges = [r.range for r in self.hub.asked("GET", "", "store")]
        self.assertEqual(len(ranges), 5)
        self.assertIn(f"bytes={8 * MIB}-{16 * MIB - 1}", ranges)
        # The redirect is not walked again for every part.
        self.assertLessEqual(len(self.hub.asked("GET", "/resolve/")), 4)

    def test_many_files(self):
        repo = self.add({f"d{i % 7}/f{i}.bin": Large(random_bytes(1000 + i, i)) for i in range(120)})
        self.pull("--jobs", "16")
        self.complete(self.files, repo.commit)


class Access(PullTest):
    def test_token_goes_to_the_hub_and_nowhere_else(self):
        repo = self.add(private=True)
        self.pull(HF_TOKEN=Hub.token)
        self.complete(self.files, repo.commit)
        self.assertTrue(all(r.token == f"Bearer {Hub.token}" for r in self.hub.asked("GET", "", "hub")))
        self.assertTrue(self.hub.asked("GET", "", "store"))
        self.assertFalse([r for r in self.hub.requests if r.server == "store" and r.token])

    def test_token_sources(self):
        repo = self.add(private=True)
        (self.home / "token").write_text(Hub.token + "\n")
        self.pull("--dry-run")
        self.fails("--dry-run", HF_HUB_DISABLE_IMPLICIT_TOKEN="1", says="HF_TOKEN")
        (self.home / "token").rename(self.home / "elsewhere")
        self.fails("--dry-run", says="HF_TOKEN")
        self.pull("--dry-run", HF_TOKEN_PATH=str(self.home / "elsewhere"))
        self.pull("--dry-run", HF_TOKEN_PATH="~/elsewhere")
        self.pull("--dry-run", "--token-file", str(self.home / "elsewhere"), HF_TOKEN="wrong")
        self.fails("--token-file", str(self.home / "none"), says="--token-file")
        self.fails(HF_TOKEN="two words", says="HF_TOKEN holds no token", code=2)
        self.fails("--token", "x", says=["HF_TOKEN", "ps"], code=2)
        self.assertTrue(repo.private)

    def test_server_that_sends_the_token_back(self):
        self.add()
        self.hub.fault("GET", "/api/", hub_server.status(403, f"Bearer {Hub.token} may not"))
        self.fails(HF_TOKEN=Hub.token, says=["403", "*** may not"])
        self.fails("--json", HF_TOKEN=Hub.token)

    def test_private_gated_and_unknown(self):
        self.add(private=True)
        self.fails(says=["401", "private, gated, or does not exist", "HF_TOKEN"])
        self.fails(HF_TOKEN="hf_wrong", says=["401", "token is not accepted"])
        self.fails(name="org/other", says=["org/other", "401"])
        self.hub.add("org/name", self.files, gated=True)
        self.fails(says=["gated", f"{self.hub.url()}/org/name", "HF_TOKEN"])
        self.hub.fault("HEAD", "config.json", hub_server.status(403, "Access restricted", {"X-Error-Code": "GatedRepo"}))
        self.fails(HF_TOKEN=Hub.token, says=["403", "accept its conditions"])

    def test_not_found(self):
        self.add()
        self.fails(name="org/name@v9", says=["404", "no such branch, tag or commit"])
        self.hub.fault("GET", "/api/", hub_server.status(404))
        self.fails(says=["404", "org/name", "check the spelling"])

    def test_file_that_vanishes(self):
        self.add()
        self.hub.fault("GET", "config.json", hub_server.status(404, "Entry not found"))
        self.fails(says=["config.json", "404"])

    def test_offline(self):
        self.add()
        self.fails(says="HF_HUB_OFFLINE", HF_HUB_OFFLINE="1")
        self.assertEqual(self.hub.requests, [])

    def test_wrong_requests(self):
        self.add()
        for arguments in ([""], ["a/b/c"], ["../x"], ["org/na me"], ["org/name@../x"], ["org/name", "--revision", "/x"],
                          ["org/name@a", "--revision", "b"], ["org/name", "--jobs", "0"], ["org/name", "--nonsense"]):  # fmt: skip
            done = self.run_pull(*arguments[1:], name=arguments[0])
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))
        self.fails(HF_ENDPOINT="not a url", says="HF_ENDPOINT", code=2)
        self.assertEqual(self.hub.requests, [])

    def test_nobody_there(self):
        self.add()
        self.fails("--retries", "1", HF_ENDPOINT="http://127.0.0.1:1", says=["127.0.0.1:1", "tried 2 times"])

    def test_json_error(self):
        done = self.fails("--json", name="org/name")
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["code"], "permission_denied")
        self.assertIn("org/name", error["message"])


class Encrypted(PullTest):
    """TLS with a certificate that only the test trusts."""

    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("the program openssl, which makes the certificate, is not installed")
        self.certificate, key = self.home / "cert.pem", self.home / "key.pem"
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=hub",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(self.certificate)],
            check=True, capture_output=True)  # fmt: skip
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)

    def start(self, *names):
        self.hub = self.enterContext(Hub({name: self.context for name in names}))
        self.environment.update(HF_ENDPOINT=self.hub.url())
        return self.add(private=True)

    def test_trusted(self):
        repo = self.start("hub", "store")
        self.pull(HF_TOKEN=Hub.token, SSL_CERT_FILE=str(self.certificate))
        self.complete(self.files, repo.commit)

    def test_unknown_certificate(self):
        self.start("hub", "store")
        self.fails(HF_TOKEN=Hub.token, says=["certificate", "SSL_CERT_FILE"])
        self.assertEqual(self.hub.requests, [])

    def test_redirect_out_of_tls(self):
        self.start("hub")
        self.fails(HF_TOKEN=Hub.token, SSL_CERT_FILE=str(self.certificate), says=["from https to http://127.0.0.1"])
        self.assertEqual(self.hub.asked("GET", "", "store"), [])


class Network(PullTest):
    def test_cut_connections_go_on_where_they_broke(self):
        repo = self.add()
        self.hub.fault("GET", "model.safetensors", hub_server.cut(100_000), times=2, server="store")
        done = self.pull()
        self.complete(self.files, repo.commit)
        starts = [r.range for r in self.hub.asked("GET", "model.safetensors", "store")]
        self.assertEqual(starts[0], None)
        self.assertEqual(starts[1:], ["bytes=100000-299999", "bytes=200000-299999"])
        self.assertIn("trying again", done.stderr)

    def test_cut_before_the_answer(self):
        repo = self.add()

        def drop(handler, **_):
            handler.drop()
            return True

        self.hub.fault("GET", "/api/", drop, times=2)
        self.hub.fault("GET", "model.safetensors", drop, times=2)
        self.pull()
        self.complete(self.files, repo.commit)

    def test_connection_that_never_holds(self):
        self.add()
        self.hub.fault("GET", "model.safetensors", hub_server.cut(0), server="store")
        self.fails("--retries", "2", says=["model.safetensors", "tried 3 times", "goes on"])

    def test_stall(self):
        repo = self.add()
        self.hub.fault("GET", "model.safetensors", hub_server.stall(50_000, 60), times=1, server="store")
        done = self.pull()
        self.complete(self.files, repo.commit)
        self.assertIn("no byte for 1 s", done.stderr)
        self.assertEqual(self.hub.asked("GET", "model.safetensors", "store")[1].range, "bytes=50000-299999")

    def test_too_many_requests(self):
        repo = self.add()
        busy = hub_server.status(429, "slow down", {"Retry-After": "1"})
        self.hub.fault("GET", "/api/", busy, times=1)
        self.hub.fault("GET", "model.safetensors", busy, times=1)
        done = self.pull()
        self.complete(self.files, repo.commit)
        self.assertIn("429", done.stderr)
        # Half of the 50 ms that --retry-wait asks for at least, the whole second that the hub asks for at most: the hub's word counts.
        self.assertRegex(done.stderr, r"trying again in 1\.0 s")

    def test_retry_after_as_a_date(self):
        self.add()
        date = {"Date": "Tue, 01 Dec 2026 00:00:00 GMT", "Retry-After": "Tue, 01 Dec 2026 00:00:02 GMT"}
        self.hub.fault("GET", "/api/", dated(503, date), times=1)
        self.assertRegex(self.pull().stderr, r"trying again in 2\.0 s")

    def test_retry_after_beyond_reason(self):
        self.add()
        self.hub.fault("GET", "/api/", hub_server.status(429, "", {"Retry-After": "86400"}))
        self.fails(says=["429", "86400 s"])

    def test_too_many_requests_for_ever(self):
        self.add()
        self.hub.fault("GET", "/api/", hub_server.status(429))
        self.fails("--retries", "1", says=["429", "too many requests", "tried 2 times"])

    def test_server_errors_that_pass(self):
        repo = self.add()
        for code in (500, 502, 503, 504):
            self.hub.fault("GET", "/revision/", hub_server.status(code), times=1)
        self.hub.fault("HEAD", "config.json", hub_server.status(503), times=1)
        self.hub.fault("GET", "config.json", hub_server.status(500), times=1)
        self.hub.fault("GET", "", hub_server.status(503), times=1, server="store")
        self.pull()
        self.complete(self.files, repo.commit)

    def test_server_errors_that_stay(self):
        self.add()
        self.hub.fault("GET", "", hub_server.status(503, "down for repair"), server="store")
        self.fails("--retries", "2", says=["model.safetensors", "503", "down for repair", "tried 3 times"])

    def test_signed_address_that_expires(self):
        repo = self.add({"model.safetensors": Large(random_bytes(20 * MIB))})
        self.hub.fault("GET", f"{blob_hash(self.files['model.safetensors'])}", AfterFirst(hub_server.status(403, "expired")), times=2, server="store")
        self.pull("--jobs", "1")
        self.complete(self.files, repo.commit)
        self.assertEqual(len(self.hub.asked("GET", "/resolve/")), 2)

    def test_redirects_without_end(self):
        self.add()

        def again(handler, **_):
            handler.answer(302, {"Location": handler.path}, b"")
            return True

        self.hub.fault("GET", "/api/", again)
        self.fails(says="redirects")

    def test_redirect_to_no_web_address(self):
        self.add()
        self.hub.fault("GET", "config.json", hub_server.status(302, "", {"Location": "file:///etc/passwd"}))
        self.fails(says=["redirects to", "file:///etc/passwd"])

    def test_interrupt_leaves_a_true_beginning(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        self.hub.fault("GET", "", hub_server.slow(10_000, 0.1), server="store")
        name = f"{blob_hash(data)}.incomplete"
        process = self.start_and_wait_for(name, 20_000)
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=60)
        self.assertEqual((process.returncode, out), (1, ""))
        self.assertIn("goes on from there", errors)
        self.assertEqual(self.incomplete(), [name])
        self.go_on(name, data, repo)

    def test_kill_leaves_a_true_beginning(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        self.hub.fault("GET", "", hub_server.slow(10_000, 0.1), server="store")
        name = f"{blob_hash(data)}.incomplete"
        process = self.start_and_wait_for(name, 20_000)
        process.kill()
        process.communicate()
        self.go_on(name, data, repo)

    def test_kill_within_parallel_parts(self):
        data = Large(random_bytes(40 * MIB))
        repo = self.add({"model.safetensors": data})
        self.hub.fault("GET", "", hub_server.slow(64_000, 0.02), server="store")
        name = f"{blob_hash(data)}.incomplete"
        process = self.start_and_wait_for(name, 500_000)
        process.kill()
        process.communicate()
        self.go_on(name, data, repo)

    def start_and_wait_for(self, name, size):
        process = subprocess.Popen(
            self.command("org/name"), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        file = self.repo / "blobs" / name
        end = time.monotonic() + 60
        while not (file.exists() and file.stat().st_size >= size):
            self.assertIsNone(process.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return process

    def go_on(self, name, data, repo):
        begun = (self.repo / "blobs" / name).read_bytes()
        self.assertGreaterEqual(len(begun), 20_000)
        self.assertEqual(begun, data[: len(begun)])
        self.assertFalse((self.repo / "refs" / "main").exists())
        self.hub.faults.clear()
        self.hub.requests.clear()
        document = json.loads(self.pull("--json").stdout)
        self.complete(self.files, repo.commit)
        starts = [int(r.range.split("=")[1].split("-")[0]) for r in self.hub.asked("GET", "", "store")]
        self.assertEqual(min(starts), len(begun))
        self.assertLessEqual(document["bytes"]["received"], sum(map(len, self.files.values())) - len(begun))


class AfterFirst:
    """Lets one request through and faults from then on."""

    def __init__(self, act):
        self.act, self.seen = act, 0

    def __call__(self, handler, **more):
        self.seen += 1
        return self.act(handler, **more) if self.seen > 1 else None


def dated(code, headers):
    """A reply with a Date of its own."""

    def act(handler, **_):
        handler.send_response_only(code)
        for name, value in {**headers, "Content-Length": "0"}.items():
            handler.send_header(name, value)
        handler.end_headers()
        return True

    return act


class Lies(PullTest):
    def blobs(self):
        return sorted(p.name for p in (self.repo / "blobs").glob("*"))

    def test_wrong_bytes(self):
        self.add()
        data = self.files["model.safetensors"]
        self.hub.fault("GET", "", hub_server.corrupt(1234), server="store")
        self.fails(says=["model.safetensors", "sha256", blob_hash(data)])
        self.assertNotIn(blob_hash(data), self.blobs())
        self.assertEqual(self.incomplete(), [])

    def test_wrong_bytes_of_a_small_file(self):
        self.add()
        self.hub.fault("GET", "config.json", hub_server.corrupt(3))
        self.fails(says=["config.json", "git blob sha1", git_hash(self.files["config.json"])])
        self.assertNotIn(git_hash(self.files["config.json"]), self.blobs())

    def test_wrong_beginning_from_before(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(b"x" * 1000)
        done = self.pull()
        self.complete(self.files, repo.commit)
        self.assertIn("fetching it anew", done.stderr)

    def test_true_beginning_from_before(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(data[:250_000])
        self.pull()
        self.complete(self.files, repo.commit)
        self.assertEqual([r.range for r in self.hub.asked("GET", "", "store")], ["bytes=250000-299999"])

    def test_all_but_the_name_from_before(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(data)
        self.pull()
        self.complete(self.files, repo.commit)
        self.assertEqual(self.hub.asked("GET", "", "store"), [])

    def test_too_much_from_before(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(data + b"x")
        self.pull()
        self.complete(self.files, repo.commit)

    def test_blob_of_the_wrong_size_is_replaced(self):
        repo = self.add()
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / blob_hash(self.files["model.safetensors"])).write_bytes(b"short")
        document = json.loads(self.pull("--json").stdout)
        self.assertEqual({f["state"] for f in document["files"]}, {"downloaded"})
        self.assertEqual(document["bytes"]["missing"], sum(map(len, self.files.values())))
        self.complete(self.files, repo.commit)

    def test_server_without_ranges(self):
        repo = self.add()
        data = self.files["model.safetensors"]
        self.hub.fault("GET", "", hub_server.without_ranges, server="store")
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(data[:250_000])
        self.pull()
        self.complete(self.files, repo.commit)

    def test_large_file_from_a_server_without_ranges(self):
        repo = self.add({"model.safetensors": Large(random_bytes(40 * MIB)), "other.bin": Large(random_bytes(20 * MIB, 2))})
        self.hub.fault("GET", "", hub_server.without_ranges, server="store")
        document = json.loads(self.pull("--json").stdout)
        self.complete(self.files, repo.commit)
        self.assertEqual(document["bytes"]["received"], 60 * MIB)
        # Once it is known, one request brings the whole file.
        self.assertGreaterEqual([r.range for r in self.hub.asked("GET", "", "store")].count(None), 2)

    def test_another_range_than_asked_for(self):
        self.add()
        data = self.files["model.safetensors"]
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(data[:1000])
        self.hub.fault("GET", "", hub_server.replaced(data[500:], Content_Range="bytes 500-299999/300000"), server="store")
        self.fails(says=["asked for bytes from 1000", "bytes 500-299999/300000"])

    def test_range_of_another_file(self):
        self.add()
        data = self.files["model.safetensors"]
        (self.repo / "blobs").mkdir(parents=True)
        (self.repo / "blobs" / f"{blob_hash(data)}.incomplete").write_bytes(data[:1000])
        self.hub.fault("GET", "", hub_server.replaced(data[1000:], Content_Range="bytes 1000-299999/400000"), server="store")
        self.fails(says=["has 400000 bytes", "says 300000"])

    def test_range_not_satisfiable(self):
        self.add()
        self.hub.fault("GET", "", hub_server.status(416), server="store")
        self.fails(says=["416", "shorter than the hub said"])

    def test_length_too_large(self):
        """More is announced than sent: the connection ends early, again and again."""
        self.add()
        self.hub.fault("GET", "", hub_server.replaced(b"short", Content_Length="300000"), server="store")
        self.fails("--retries", "1", says=["model.safetensors", "tried 2 times"])

    def test_length_too_small_then_right(self):
        repo = self.add()
        self.hub.fault("GET", "config.json", hub_server.replaced(b'{"mod', Content_Length="22"), times=1)
        self.pull()
        self.complete(self.files, repo.commit)

    def test_other_length_than_listed(self):
        self.add()
        self.hub.fault("GET", "config.json", hub_server.replaced(b"{}"))
        self.fails(says=["config.json", "has 2 bytes", "says 22"])

    def test_more_than_listed(self):
        self.add()

        def endless(handler, data, headers, **_):
            handler.answer(200, {k: v for k, v in headers.items()} | {"Connection": "close"}, b"x" * 400_000, raw=True)
            handler.close_connection = True
            return True

        self.hub.fault("GET", "", endless, server="store")
        self.fails(says=["model.safetensors", "more than the 300000 bytes"])
        self.assertLessEqual(max(p.stat().st_size for p in self.repo.glob("blobs/*")), 300_000)

    def test_two_sizes(self):
        self.add()
        self.hub.redirect_headers = {"X-Linked-Size": "299999"}
        self.fails(says=["model.safetensors", "two sizes", "300000", "299999"])

    def test_another_commit(self):
        self.add()
        self.hub.redirect_headers = {"X-Repo-Commit": "f" * 40}
        self.fails(says=["model.safetensors", "f" * 40])

    def test_compressed_anyway(self):
        self.add()
        self.hub.fault("GET", "config.json", hub_server.replaced(b"\x1f\x8b" + b"x" * 20, Content_Encoding="gzip"))
        self.fails(says=["config.json", "gzip"])

    def test_size_only_known_at_the_end(self):
        repo = self.add(tree=False)
        self.hub.redirect_headers = {"X-Linked-Size": None}
        self.pull()
        self.complete(self.files, repo.commit)

    def test_no_etag(self):
        self.add()
        self.hub.fault("HEAD", "config.json", hub_server.replaced(b"", ETag=None))
        self.fails(says=["config.json", "no ETag"])

    def test_hostile_etags(self):
        for etag in ('"../../../evil"', '"a/b"', '""', '".."', '"' + "a" * 200 + '"', '"x.incomplete"', '"a\\b"'):
            self.add()
            self.hub.faults.clear()
            self.hub.fault("HEAD", "config.json", hub_server.replaced(b"", ETag=etag))
            self.fails(says=["config.json", "ETag"])
        self.assertEqual(list(self.home.rglob("*evil*")), [])

    def test_hostile_paths(self):
        for path in ("../evil", "a/../../evil", "/evil", "a//evil", "evil/", "./evil", "a\\..\\evil", "evil\0.txt", "evil\n", "x" * 300,
                     "a/" * 600 + "evil", "\x1b]0;evil", "a/.."):  # fmt: skip
            for tree in (True, False):
                self.add({"config.json": b"{}", path: b"evil"}, tree=tree)
                done = self.fails("--json", says="nothing was written")
                self.assertEqual(json.loads(done.stdout)["error"]["code"], "corrupt")
        self.assertEqual(list(self.home.iterdir()), [])

    def test_file_that_is_a_folder_too(self):
        self.add({"a": b"1", "a.b": b"2", "a/b": b"3"})
        self.fails(says=['"a"', "folder"])

    def test_file_listed_twice(self):
        repo = self.add()
        repo.entries = [{"type": "file", "path": "a", "size": 1, "oid": "0" * 40}] * 2
        self.fails(says=["twice"])

    def test_absurd_lists(self):
        entry = {"type": "file", "path": "a", "size": 1, "oid": "0" * 40}
        for entries in ({}, [1], [{}], [{**entry, "size": -1}], [{**entry, "size": 1e300}], [{**entry, "size": "1"}], [{**entry, "size": 2**60}],
                        [{**entry, "path": 5}], [{**entry, "lfs": []}], [{**entry, "lfs": {"oid": 1, "size": 1}}]):  # fmt: skip
            repo = self.add()
            repo.entries = []
            self.hub.faults.clear()
            self.hub.fault("GET", "/tree/", lambda handler, entries=entries, **_: handler.send_json(entries) or True)
            done = self.fails("--json")
            self.assertEqual(json.loads(done.stdout)["error"]["code"], "corrupt", (entries, done.stderr))

    def test_absurd_models(self):
        for extra in ({"sha": None}, {"sha": "../../x"}, {"sha": 5}, {"sha": "f" * 39}, {"siblings": {}}, {"siblings": [{}]}, {"siblings": [[]]}):
            self.add(extra=extra)
            done = self.fails("--json")
            self.assertEqual(json.loads(done.stdout)["error"]["code"], "corrupt", (extra, done.stderr))
        for body in (b"", b"<html>", b"[" * 100_000, b'{"sha": "' + b"\xff" * 40 + b'"}'):
            self.hub.fault("GET", "/revision/", lambda handler, body=body, **_: handler.send_json(body) or True, times=1)
            self.fails()

    def test_more_than_the_disk_holds(self):
        repo = self.add()
        repo.entries = [{"type": "file", "path": f"model-{i}.bin", "size": 2**48, "oid": f"{i:040x}"} for i in range(2)]
        self.hub.fault("HEAD", "", lambda handler, **_: handler.answer(200, {"ETag": '"%040x"' % int(handler.path[-5])}, b"", raw=True) or True)
        repo.files = {f"model-{i}.bin": b"" for i in range(2)}
        self.fails(says=["needs 524288.00 GiB more", str(self.cache), "free"])
        self.assertEqual(self.hub.asked("GET", "/resolve/"), [])

    def test_link_in_the_way(self):
        repo = self.add()
        outside = self.home / "outside"
        outside.mkdir()
        snapshot = self.repo / "snapshots" / repo.commit
        snapshot.mkdir(parents=True)
        (snapshot / "folder").symlink_to(outside)
        self.fails(says=["folder", "in the way"])
        self.assertEqual(list(outside.iterdir()), [])

    def test_folder_that_may_not_be_written(self):
        self.add()
        blocked = self.home / "file"
        blocked.write_text("")
        self.fails(says=str(blocked), HF_HUB_CACHE=str(blocked / "hub"))


class Together(PullTest):
    def test_two_pulls_share_the_work(self):
        repo = self.add({f"m{i}.bin": Large(random_bytes(200_000, i)) for i in range(6)})
        self.hub.fault("GET", "", hub_server.slow(20_000, 0.02), server="store")
        both = [
            subprocess.Popen(self.command("org/name", "--jobs", "2"), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        for process in both:
            _, errors = process.communicate(timeout=120)
            self.assertEqual(process.returncode, 0, errors)
        self.complete(self.files, repo.commit)
        self.assertEqual(len(self.hub.asked("GET", "", "store")), 6)


def main():
    global BINARY
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    arguments, rest = parser.parse_known_args()
    BINARY = arguments.binary
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
