#!/usr/bin/env python3
"""What we pull, the Python library huggingface_hub opens, and the reverse: both against the hub look-alike, in one cache.

  interop_test.py --binary build/release/sterling --fixture tests/golden/qwen3/checkpoint

Exit 77: skipped, huggingface_hub is not installed."""

import argparse
import fcntl
import importlib.util
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import hub_server
from hub_server import Hub, Large, blob_hash

BINARY = FIXTURE = None


class InteropTest(unittest.TestCase):
    def setUp(self):
        self.hub = self.enterContext(Hub())
        self.home = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.cache = self.home / "hub"
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("HF_", "HUGGING", "XDG_", "SSL_")) and not name.lower().endswith(("proxy", "_bundle"))
        }
        self.environment.update(
            HF_HOME=str(self.home), HF_ENDPOINT=self.hub.url(), HOME=str(self.home), HF_HUB_DISABLE_TELEMETRY="1", HF_HUB_DISABLE_PROGRESS_BARS="1"
        )
        self.files = {}
        for path in sorted(FIXTURE.iterdir()):
            data = path.read_bytes()
            self.files[path.name] = Large(data) if path.suffix == ".safetensors" else data
        self.files["extra/notes.txt"] = b"notes"
        self.model = self.hub.add("org/name", self.files)

    def run_ours(self, *arguments, code=0, **environment):
        done = subprocess.run([BINARY, *arguments], env={**self.environment, **environment}, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def run_theirs(self, source, **environment):
        """Runs Python that has huggingface_hub as `hf` and prints JSON."""
        program = "import json, huggingface_hub as hf\n" + source
        done = subprocess.run(
            [sys.executable, "-c", program], env={**self.environment, **environment}, capture_output=True, text=True, timeout=120
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[-1])

    def inspect(self, model, **environment):
        return json.loads(self.run_ours("inspect", model, "--json", **environment).stdout)

    def check_inspection(self, found):
        """The same as of the folder itself, but for the path."""
        expected = self.inspect(str(FIXTURE))
        for document in (found, expected):
            for place in ("path", "lint"):
                document.pop(place)
        self.assertEqual(json.loads(json.dumps(found).replace("/config.json", "")), json.loads(json.dumps(expected).replace("/config.json", "")))


class OursToTheirs(InteropTest):
    def test_snapshot(self):
        path = self.run_ours("pull", "org/name").stdout.strip()
        self.hub.requests.clear()
        self.assertEqual(self.run_theirs("print(json.dumps(hf.snapshot_download('org/name', local_files_only=True)))"), path)
        self.assertEqual(self.run_theirs("print(json.dumps(hf.snapshot_download('org/name')))", HF_HUB_OFFLINE="1"), path)
        self.assertEqual(self.hub.requests, [])

    def test_files(self):
        path = self.run_ours("pull", "org/name").stdout.strip()
        found = self.run_theirs("print(json.dumps([hf.try_to_load_from_cache('org/name', n) for n in ('config.json', 'extra/notes.txt')]))")
        self.assertEqual(found, [f"{path}/config.json", f"{path}/extra/notes.txt"])

    def test_nothing_is_fetched_again(self):
        path = self.run_ours("pull", "org/name").stdout.strip()
        self.hub.requests.clear()
        self.assertEqual(self.run_theirs("print(json.dumps(hf.snapshot_download('org/name')))"), path)
        self.assertEqual(self.hub.asked("GET", "/resolve/") + self.hub.asked("GET", "", "store"), [])

    def test_scan(self):
        self.run_ours("pull", "org/name")
        self.run_ours("pull", f"org/name@{self.model.commit}")
        found = self.run_theirs(
            "i = hf.scan_cache_dir()\n"
            "print(json.dumps({'warnings': [str(w) for w in i.warnings], 'size': i.size_on_disk, 'repos': [[r.repo_id, r.repo_type, r.nb_files,"
            " [[v.commit_hash, sorted(v.refs), sorted(f.file_name for f in v.files)] for v in r.revisions]] for r in i.repos]}))"
        )
        self.assertEqual(found["warnings"], [])
        self.assertEqual(found["size"], sum(len(data) for data in self.files.values()))
        names = sorted(name.split("/")[-1] for name in self.files)
        self.assertEqual(found["repos"], [["org/name", "model", len(self.files), [[self.model.commit, ["main"], names]]]])

    def test_goes_on_where_we_stopped(self):
        """A download of ours that was cut off does not stand in the way of theirs."""
        self.hub.fault("GET", "model.safetensors", hub_server.cut(1000), server="store")
        self.run_ours("pull", "org/name", "--retries", "0", code=1)
        self.hub.faults.clear()
        path = pathlib.Path(self.run_theirs("print(json.dumps(hf.snapshot_download('org/name')))"))
        self.assertEqual((path / "model.safetensors").read_bytes(), self.files["model.safetensors"])


class TheirsToOurs(InteropTest):
    def test_inspect(self):
        path = self.run_theirs("print(json.dumps(hf.snapshot_download('org/name')))")
        self.hub.requests.clear()
        found = self.inspect("org/name")
        self.assertEqual(found["path"], path)
        self.check_inspection(found)
        self.check_inspection(self.inspect(f"org/name@{self.model.commit}", HF_HUB_OFFLINE="1"))
        self.check_inspection(self.inspect(f"org/name@{self.model.commit[:7]}"))
        self.assertEqual(self.hub.requests, [])

    def test_pull_finds_all_there(self):
        path = self.run_theirs("print(json.dumps(hf.snapshot_download('org/name')))")
        self.hub.requests.clear()
        document = json.loads(self.run_ours("pull", "org/name", "--json").stdout)
        self.assertEqual((document["path"], document["bytes"]["received"]), (path, 0))
        self.assertEqual({f["path"]: f["blob"] for f in document["files"]}, {n: blob_hash(d) for n, d in self.files.items()})
        self.assertEqual(self.hub.asked("GET", "/resolve/") + self.hub.asked("GET", "", "store"), [])

    def test_pull_completes_a_single_file(self):
        self.run_theirs("print(json.dumps(hf.hf_hub_download('org/name', 'config.json')))")
        self.run_ours("pull", "org/name")
        self.assertEqual(len(self.hub.asked("GET", "/config.json")), 1)
        self.check_inspection(self.inspect("org/name"))

    def test_branches(self):
        self.model.refs["side/line"] = self.model.commit
        self.run_theirs("print(json.dumps(hf.snapshot_download('org/name', revision='side/line')))")
        self.check_inspection(self.inspect("org/name@side/line"))
        error = self.run_ours("inspect", "org/name", code=1).stderr
        self.assertIn("side/line", error)
        self.assertIn("sterling pull org/name", error)

    def test_lock_is_theirs_too(self):
        """While another program has a blob's lock, nothing is written for it."""
        data = self.files["model.safetensors"]
        locks = self.cache / ".locks" / "models--org--name"
        locks.mkdir(parents=True)
        with open(locks / f"{blob_hash(data)}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            process = subprocess.Popen([BINARY, "pull", "org/name"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            line = process.stderr.readline()
            self.assertIn("another process is downloading it", line)
            self.assertEqual(self.hub.asked("GET", "", "store"), [])
            fcntl.flock(lock, fcntl.LOCK_UN)
        out, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, errors)

    def test_lock_file_is_the_one_that_their_library_takes(self):
        data = self.files["model.safetensors"]
        self.hub.fault("GET", "", hub_server.slow(20_000, 0.2), server="store")
        source = "print(json.dumps(hf.hf_hub_download('org/name', 'model.safetensors')))"
        theirs = subprocess.Popen([sys.executable, "-c", "import json, huggingface_hub as hf\n" + source], env=self.environment, stdout=subprocess.PIPE)
        lock = self.cache / ".locks" / "models--org--name" / f"{blob_hash(data)}.lock"
        while not self.hub.asked("GET", "", "store"):
            self.assertIsNone(theirs.poll())
        self.assertTrue(lock.exists())
        self.run_ours("pull", "org/name")
        theirs.communicate(timeout=60)
        self.assertEqual(theirs.returncode, 0)
        self.assertEqual(len(self.hub.asked("GET", "", "store")), 1)


class Patterns(InteropTest):
    """--include and --exclude choose what the library's allow_patterns and ignore_patterns choose."""

    def test_same_choice(self):
        names = ["a", "b.json", "A.JSON", "[x]", "x-y", "a!b", "d/a", "d/b.json", "d/e/f.bin", "\u00e9.txt", "d/\u4e2d.json", "model-00001-of-00002.safetensors",
                 "model-00002-of-00002.safetensors", "a]b", "c^d", "-", "d-1", "d.1/z", "tokenizer.json", "*", "q?"]  # fmt: skip
        self.hub.add("org/name", {name: b"%d" % i for i, name in enumerate(names)})
        fixed = [("*",), ("*.json",), ("d/",), ("d/*", "!*"), ("[ab]",), ("[!ab]",), ("[]]",), ("[]a-]*",), ("[a-c]*",), ("[c-a]",), ("[",), ("[]",), ("[!]",),
                 ("[!]]",), ("*[x*",), ("?",), ("??",), ("\u00e9*",), ("?.txt",), ("[\u00e0-\u00ff]*",), ("d/?.json",), ("**/*.json",), ("[[]x[]]",), ("[-a]",), ("[a-]",),
                 ("model-0000[1]-*", "*.bin"), ("*-*-*",), ("d\\*",), ("[^a]*",), ("c^d",), ("[!-~]",), ("[--0]*",), ("[a-a-c]*",), ("[*]",), ("q[?]",)]  # fmt: skip
        choose = random.Random(7)
        while len(fixed) < 70:
            fixed.append(tuple("".join(choose.choice("ab*?[]!-./djx^") for _ in range(choose.randint(1, 7))) for _ in range(choose.randint(1, 2))))
        cases = [(list(p), list(fixed[-i - 1])) if i % 3 == 0 else (list(p), []) for i, p in enumerate(fixed)]
        expected = self.run_theirs(
            f"from huggingface_hub.utils import filter_repo_objects as f\nnames, cases = json.loads({json.dumps([names, cases])!r})\n"
            "print(json.dumps([sorted(f(names, allow_patterns=a, ignore_patterns=i)) for a, i in cases]))"
        )
        self.assertGreater(len({tuple(e) for e in expected}), 20)
        for (include, exclude), chosen in zip(cases, expected):
            flags = [f"--include={p}" for p in include] + [f"--exclude={p}" for p in exclude]
            done = subprocess.run([BINARY, "pull", "org/name", "--dry-run", "--json", *flags], env=self.environment, capture_output=True, text=True)
            document = json.loads(done.stdout)
            if done.returncode != 0:
                self.assertIn("is chosen", document["error"]["message"])
            self.assertEqual(sorted(f["path"] for f in document.get("files", [])), chosen, (include, exclude))


class Places(InteropTest):
    """Where the library looks, we look: the variables and their order."""

    def test_environment(self):
        home = str(self.home)
        cases = [
            {},
            {"HF_HOME": f"{home}/a"},
            {"HF_HOME": "~/b"},
            {"HF_HOME": "$PLACE/c", "PLACE": f"{home}/x"},
            {"HF_HUB_CACHE": f"{home}/d", "HUGGINGFACE_HUB_CACHE": f"{home}/e"},
            {"HUGGINGFACE_HUB_CACHE": f"{home}/e"},
            {"HF_HOME": "", "XDG_CACHE_HOME": f"{home}/f"},
        ]
        for case in cases:
            environment = {k: v for k, v in case.items() if v}
            base = {k: v for k, v in self.environment.items() if not (k == "HF_HOME" and case.get(k, "x") == "")}
            saved, self.environment = self.environment, base
            path = self.run_theirs("print(json.dumps(hf.snapshot_download('org/name')))", **environment)
            self.assertEqual(self.inspect("org/name", **environment)["path"], path, case)
            self.environment = saved


class Resolution(InteropTest):
    def test_local_path_wins(self):
        self.run_ours("pull", "org/name")
        with tempfile.TemporaryDirectory() as folder:
            local = pathlib.Path(folder) / "org" / "name"
            local.mkdir(parents=True)
            (local / "config.json").write_bytes((FIXTURE / "config.json").read_bytes())
            done = subprocess.run([BINARY, "inspect", "org/name", "--json"], env=self.environment, cwd=folder, capture_output=True, text=True)
            self.assertFalse(json.loads(done.stdout)["weights_present"], done.stderr)

    def test_not_there(self):
        error = self.run_ours("inspect", "org/absent", code=1).stderr
        self.assertIn(str(self.cache / "models--org--absent"), error)
        self.assertIn("`sterling pull org/absent`", error)
        document = json.loads(self.run_ours("inspect", "org/absent", "--json", code=1).stdout)
        self.assertEqual(document["error"]["code"], "not_found")

    def test_unfinished_download(self):
        self.hub.fault("GET", "model.safetensors", hub_server.cut(1000), server="store")
        self.run_ours("pull", "org/name", "--retries", "0", code=1)
        error = self.run_ours("inspect", "org/name", code=1).stderr
        self.assertIn("no finished revision main", error)

    def test_serve_and_chat_ask_the_cache(self):
        for command in (["serve", "org/absent", "--port", "0"], ["chat", "org/absent", "--ask", "x"]):
            error = self.run_ours(*command, code=1).stderr
            self.assertIn("`sterling pull org/absent`", error)


    def test_served_under_its_id(self):
        self.run_ours("pull", "org/name")
        process = subprocess.Popen([BINARY, "serve", "org/name", "--port", "0"], env=self.environment, stderr=subprocess.PIPE, text=True)
        try:
            lines = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"ready address=(\S+) model=(\S+)", line):
                    break
            else:
                self.fail("".join(lines))
            self.assertEqual(found[2], "org/name")
            self.assertIn(f"snapshots/{self.model.commit}", "".join(lines))
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(found[1] + "/v1/models", timeout=30) as answer:
                self.assertEqual([m["id"] for m in json.load(answer)["data"]], ["org/name"])
        finally:
            process.terminate()
            process.communicate(timeout=60)


def main():
    global BINARY, FIXTURE
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--fixture", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    if importlib.util.find_spec("huggingface_hub") is None:
        print("skipped: the Python package huggingface_hub is not installed", file=sys.stderr)
        sys.exit(77)
    BINARY, FIXTURE = arguments.binary, arguments.fixture.resolve()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
