#!/usr/bin/env python3
"""`sterling calibrate` and `sterling audit` from outside, on the recall model and on a copy whose K is 256 times larger.

  calibrate_audit_test.py STERLING RECALL-MODEL TOOLS-RECALL

The copy computes the same, but FP8 with a scale of 1.0 clips its K: the fault that an audit must rank first and that scales must mend.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree
from pathlib import Path

BINARY, MODEL = sys.argv[1], Path(sys.argv[2])
sys.path.insert(0, sys.argv[3])
import scale_k  # noqa: E402

FACTOR = 256
KV_CHOICES = ["kv bf16", "kv fp8_e4m3 at 1.0", "kv fp8_e4m3 scaled", "kv fp8_e4m3_token", "v fp8_e4m3 at 1.0"]


def run(*arguments, cache=None, **more):
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache or FOLDER / "cache")}
    return subprocess.run([BINARY, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=280, **more)


def setUpModule():
    global FOLDER, SCALED, PROMPTS, HOLDER
    HOLDER = tempfile.TemporaryDirectory()
    FOLDER = Path(HOLDER.name)
    SCALED = FOLDER / "scaled"
    scale_k.scale_k(MODEL, SCALED, FACTOR)
    PROMPTS = FOLDER / "prompts.jsonl"
    lines = [json.loads(line)["ids"] for line in (MODEL / "prompts.jsonl").read_text().splitlines()]
    PROMPTS.write_text("".join(json.dumps({"tokens": ids[:1500]}) + "\n" for ids in lines[:2]))


def tearDownModule():
    HOLDER.cleanup()


def calibrate(model, out, *flags):
    result = run("calibrate", model, "--prompts", PROMPTS, "--out", out, "--json", *flags)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


class Calibrate(unittest.TestCase):
    def test_a_larger_k_gets_a_larger_scale_and_v_the_same(self):
        one = calibrate(MODEL, FOLDER / "one.json", "--method", "amax", "--compute", "fp32")
        many = calibrate(SCALED, FOLDER / "many.json", "--method", "amax", "--compute", "fp32")
        for a, b in zip(one["layers"], many["layers"], strict=True):
            k = [layer["k"]["scales"][0] for layer in (a, b)]
            v = [layer["v"]["scales"][0] for layer in (a, b)]
            self.assertAlmostEqual(k[1]["chosen"]["scale"] / k[0]["chosen"]["scale"] / FACTOR, 1, delta=1e-4)
            self.assertAlmostEqual(v[1]["chosen"]["scale"] / v[0]["chosen"]["scale"], 1, delta=1e-4)
            self.assertEqual(k[0]["chosen"]["clipped"], 0)
            self.assertGreater(k[1]["at_1.0"]["clipped"], 0.01)
            self.assertGreater(k[1]["at_1.0"]["relative_mse"], 50 * k[1]["chosen"]["relative_mse"])

    def test_the_same_prompts_give_the_same_file(self):
        files = []
        for name, threads in (("a", 1), ("b", 2)):
            calibrate(MODEL, FOLDER / f"same-{name}.json", "--threads", threads)
            files.append((FOLDER / f"same-{name}.json").read_bytes())
        self.assertEqual(files[0], files[1])

    def test_squared_error_beats_amax(self):
        mse = calibrate(SCALED, FOLDER / "mse.json", "--granularity", "head")
        amax = calibrate(SCALED, FOLDER / "amax.json", "--granularity", "head", "--method", "amax")
        for a, b in zip(mse["layers"], amax["layers"], strict=True):
            for side in ("k", "v"):
                for best, whole in zip(a[side]["scales"], b[side]["scales"], strict=True):
                    self.assertLessEqual(best["chosen"]["relative_mse"], whole["chosen"]["relative_mse"])

    def test_the_server_takes_every_shape(self):
        for shape, flags in {"sterling": [], "head": ["--granularity", "head"], "vllm": ["--format", "vllm"], "sglang": ["--format", "sglang"]}.items():
            out = FOLDER / f"shape-{shape}.json"
            calibrate(SCALED, out, *flags)
            result = run("serve", SCALED, "--kv-cache-dtype", "fp8_e4m3", "--kv-scales", out, "--dry-run")
            self.assertEqual(result.returncode, 0, shape + result.stderr)
            self.assertIn(out.name, result.stdout + result.stderr, shape)

    def test_wrong_requests_say_what_is_accepted_and_write_nothing(self):
        there = FOLDER / "there.json"
        there.write_text("kept")
        bad_line = FOLDER / "bad.jsonl"
        bad_line.write_text('{"tokens": [1, 2]}\n{"tokens": [1, 999999]}\n')
        empty = FOLDER / "empty.txt"
        empty.write_text("")
        out = FOLDER / "none.json"
        for flags, said in [
            (["--prompts", PROMPTS, "--out", there], "exists; --force"),
            (["--out", out], "--prompts"),
            (["--prompts", PROMPTS], "--out"),
            (["--prompts", bad_line, "--out", out], "bad.jsonl:2: tokens is expected"),
            (["--prompts", empty, "--out", out], "holds no prompt"),
            (["--prompts", FOLDER / "nothing", "--out", out], "cannot be read"),
            (["--prompts", PROMPTS, "--out", FOLDER / "no" / "x.json"], "is no folder"),
            (["--prompts", PROMPTS, "--out", out, "--format", "vllm", "--granularity", "head"], "one value per layer"),
            (["--prompts", PROMPTS, "--out", out, "--percentile", "101"], "from 50 to 100"),
            (["--prompts", PROMPTS, "--out", out, "--context", "1000000"], "max_position_embeddings"),
        ]:
            result = run("calibrate", MODEL, *flags)
            self.assertNotEqual(result.returncode, 0, said)
            self.assertIn(said, result.stderr)
            self.assertFalse(out.exists())
        self.assertEqual(there.read_text(), "kept")
        self.assertEqual([p.name for p in FOLDER.glob("*.part")], [])


def audit(model, *flags, cache=None):
    result = run("audit", model, "--prompts", PROMPTS, "--json", *flags, cache=cache)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def chosen(names):
    return [part for name in names for part in ("--choice", name)]


class Audit(unittest.TestCase):
    def test_the_planted_fault_is_first_and_scales_mend_it(self):
        scales = FOLDER / "for-audit.json"
        calibrate(SCALED, scales)
        report = audit(SCALED, "--kv-scales", scales, "--greedy", 8)
        cost = {c["name"]: c["kl"]["mean"] for c in report["choices"]}
        kv = [c["name"] for c in report["choices"] if c["cause"] == "kv"]
        self.assertEqual(set(kv[:2]), {"kv fp8_e4m3 at 1.0", "k fp8_e4m3 at 1.0"})
        self.assertEqual(set(kv[:2]), {c["name"] for c in report["choices"][:2]}, "of all causes")
        self.assertEqual(kv[-1], "kv bf16")
        for better in ("kv fp8_e4m3 scaled", "kv fp8_e4m3_token"):
            self.assertLess(20 * cost[better], cost["kv fp8_e4m3 at 1.0"])
        self.assertEqual(sorted(cost.values(), reverse=True), list(cost.values()))
        self.assertEqual({c["cause"] for c in report["choices"]}, {"kv", "compute", "activations", "combined"})
        depths = report["choices"][0]["by_depth"]
        self.assertEqual([(d["from"], d["positions"]) for d in depths[:3]], [(0, 512), (256, 1536), (1024, 952)])

    def test_the_reference_costs_nothing(self):
        [reference] = audit(MODEL, *chosen(["reference"]), "--greedy", 4)["choices"]
        self.assertEqual(reference["kl"], {"mean": 0.0, "p95": 0.0, "p99_9": 0.0, "max": 0.0})
        self.assertEqual(reference["top1_flips"]["count"], 0)
        self.assertEqual(reference["greedy"]["diverged"], 0)
        self.assertEqual(reference["perplexity"]["difference"], 0.0)

    def test_results_depend_on_neither_chunks_nor_threads(self):
        first = audit(MODEL, *chosen(KV_CHOICES[:2]), "--greedy", 4, "--chunk", 64, "--threads", 1)
        second = audit(MODEL, *chosen(KV_CHOICES[:2]), "--greedy", 4, "--chunk", 500, "--threads", 2)
        self.assertEqual(first.pop("chunk"), 64)
        self.assertEqual(second.pop("chunk"), 500)
        self.assertEqual(first, second)

    def test_killed_and_started_again_it_goes_on_to_the_same_numbers(self):
        whole = audit(MODEL, *chosen(KV_CHOICES[:2]), "--greedy", 0)
        state = FOLDER / "audit.state"
        command = [BINARY, "audit", str(MODEL), "--prompts", str(PROMPTS), "--json", *chosen(KV_CHOICES[:2]), "--greedy", "0", "--state", str(state)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline and not (state.exists() and state.stat().st_size > 10000):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = state.stat().st_size
        self.assertGreater(kept, 0)
        self.assertEqual(audit(MODEL, *chosen(KV_CHOICES[:2]), "--greedy", 0, "--state", state), whole)
        self.assertGreaterEqual(state.stat().st_size, kept)
        other = run("audit", MODEL, "--prompts", PROMPTS, *chosen(KV_CHOICES[:1]), "--state", state)
        self.assertEqual(other.returncode, 2)
        self.assertIn("--fresh", other.stderr)

    def test_a_finished_audit_leaves_no_state_in_the_cache(self):
        cache = FOLDER / "own-cache"
        audit(MODEL, *chosen(KV_CHOICES[:1]), "--greedy", 0, "--max-tokens", 100, cache=cache)
        self.assertEqual([p for p in cache.rglob("*") if p.is_file()], [])

    def test_weights_quantised_on_the_way(self):
        report = audit(MODEL, "--weights", "nvfp4", *chosen(["weights nvfp4", "W4A4 by quantize"]), "--max-tokens", 300, "--greedy", 0)
        cost = {c["name"]: c["kl"]["mean"] for c in report["choices"]}
        self.assertGreater(cost["weights nvfp4"], 0)
        self.assertGreater(cost["W4A4 by quantize"], cost["weights nvfp4"])

    def test_the_page_stands_alone(self):
        page = FOLDER / "audit.html"
        audit(MODEL, *chosen(KV_CHOICES[:2]), "--max-tokens", 300, "--greedy", 2, "--html", page)
        text = page.read_text()
        root = xml.etree.ElementTree.fromstring(text.replace("<!DOCTYPE html>", ""))
        self.assertEqual(len(list(root.iter("svg"))), 2)
        self.assertIsNone(re.search(r"<script|https?://|src=|href=", text))
        again = run("audit", MODEL, "--prompts", PROMPTS, "--html", page)
        self.assertEqual(again.returncode, 2)
        self.assertEqual(page.read_text(), text)

    def test_wrong_requests_say_what_is_accepted(self):
        for flags, said in [
            ([MODEL], "--prompts"),
            (["--prompts", PROMPTS], "MODEL"),
            (["--prompts", PROMPTS, "--url", "http://127.0.0.1:1"], "two"),
            ([MODEL, "--prompts", PROMPTS, "--url", "http://127.0.0.1:1"], "not both"),
            ([MODEL, "--prompts", PROMPTS, "--choice", "kv fp9"], "kv fp8_e4m3 at 1.0"),
            ([MODEL, "--prompts", PROMPTS, "--samples", "3"], "goes with --url"),
            ([MODEL, "--prompts", PROMPTS, "--weights", "int4"], "nvfp4, fp8, fp8-block"),
            ([MODEL, "--prompts", PROMPTS, "--kv-scales", FOLDER / "nothing.json"], "nothing.json"),
            (["--url", "http://127.0.0.1:1", "--url", "http://127.0.0.1:1", "--prompts", PROMPTS, "--isa", "avx2"], "goes with a MODEL"),
            (["--url", "http://127.0.0.1:1", "--url", "http://127.0.0.1:1", "--prompts", PROMPTS], "127.0.0.1:1"),
        ]:
            result = run("audit", *flags)
            self.assertNotEqual(result.returncode, 0, said)
            self.assertIn(said, result.stderr)
            self.assertEqual(result.stdout, "")


class Server:
    def __init__(self, *flags):
        command = [BINARY, "serve", str(SCALED), "--port", "0", "--threads", "1", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.url = None
        for line in self.process.stderr:
            if " ready address=" in line:
                self.url = line.split("ready address=")[1].split()[0]
                break
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait(60)
        self.process.stderr.close()


class AuditServers(unittest.TestCase):
    def test_a_server_with_the_fault_stands_out_from_the_noise(self):
        with Server() as right, Server("--kv-cache-dtype", "fp8_e4m3", "--accept-unscaled-kv") as wrong:
            result = run("audit", "--url", right.url, "--url", wrong.url, "--prompts", PROMPTS, "--samples", 6, "--greedy", 8, "--json")
            self.assertEqual(result.returncode, 0, result.stderr)
            report = json.loads(result.stdout)
            same = run("audit", "--url", right.url, "--url", right.url, "--prompts", PROMPTS, "--samples", 2, "--greedy", 4, "--json")
            self.assertEqual(same.returncode, 0, same.stderr)
        cost = {c["name"]: c for c in report["choices"]}
        self.assertGreater(cost["the other server"]["kl"]["mean"], 0.01)
        self.assertEqual(cost["the reference again"]["kl"]["max"], 0.0)
        self.assertEqual(report["choices"][0]["name"], "the other server")
        self.assertIn("precision manifest", report["reference"])
        self.assertTrue(any("lower bound" in note for note in report["notes"]))
        depths = {d["from"] for d in cost["the other server"]["by_depth"] if d["positions"]}
        self.assertEqual(depths, {0, 256, 1024} & depths)
        self.assertGreaterEqual(len(depths), 2)
        self.assertTrue(all(c["kl"]["max"] == 0.0 for c in json.loads(same.stdout)["choices"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
