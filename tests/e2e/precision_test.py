#!/usr/bin/env python3
"""The precision contract from outside: what a server says of its KV cache in the log, in headers, in /v1/precision, /ready and /metrics.

  precision_test.py STERLING CHECKPOINT

CHECKPOINT is a small NVFP4 hybrid; a copy gets metadata that wishes an FP8 cache without scales, as published checkpoints do.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

BINARY, SOURCE = sys.argv[1], Path(sys.argv[2])
SENTENCE = "Using FP8 KV cache but no scaling factors provided. Defaulting to scaling factors of 1.0."


def wishing(folder):
    """A copy of the checkpoint whose two metadata files wish FP8."""
    shutil.copytree(SOURCE, folder)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["kv_cache_scheme"] = {"num_bits": 8, "type": "float", "dynamic": False}
    (folder / "config.json").write_text(json.dumps(config))
    hf_quant = folder / "hf_quant_config.json"
    document = json.loads(hf_quant.read_text()) if hf_quant.exists() else {"producer": {"name": "modelopt"}, "quantization": {}}
    document["quantization"]["kv_cache_quant_algo"] = "FP8"
    hf_quant.write_text(json.dumps(document))
    return folder


def attention_layers(folder):
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config", config)
    return [i for i, kind in enumerate(text["layer_types"]) if kind == "full_attention"]


class Server:
    def __init__(self, model, *flags):
        command = [BINARY, "serve", str(model), "--port", "0", "--threads", "1", "--kv-cache-memory", "4MiB", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.log, self.ready = [], None
        for line in self.process.stderr:
            self.log.append(line.rstrip("\n"))
            if " ready address=" in line:
                self.ready = dict(re.findall(r"(\w+)=(\S+)", line[line.index(" ready ") :]))
                break
        self.drain = threading.Thread(target=self.process.stderr.read, daemon=True)
        self.drain.start()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)
        self.drain.join(60)
        self.process.stdout.close()
        self.process.stderr.close()

    def text(self):
        return "\n".join(self.log)

    def call(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.ready["address"] + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.headers, answer.read().decode()

    def metric(self, name, labels=""):
        found = re.findall(rf"^sterling:{name}{{[^}}]*{labels}[^}}]*}} (\S+)$", self.call("/metrics")[1], re.M)
        return sum(float(x) for x in found) if found else None


class Precision(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = wishing(Path(cls.folder.name) / "wishing")
        cls.layers = attention_layers(cls.model)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def sidecar(self, name, k, v, layers=None):
        rows = [{"layer": layer, "k": [k], "v": [v]} for layer in (self.layers if layers is None else layers)]
        path = Path(self.folder.name) / name
        path.write_text(json.dumps({"format": "sterling-kv-scales", "version": 1, "layers": rows}))
        return str(path)

    def refused(self, *flags):
        with Server(self.model, *flags) as server:
            self.assertIsNone(server.ready, "the server started")
            self.assertNotEqual(server.process.wait(60), 0)
            return server.text()

    def test_a_wish_in_metadata_is_told_and_not_obeyed(self):
        with Server(self.model) as server:
            self.assertEqual(server.ready["kv_cache_dtype"], "bf16")
            self.assertEqual(server.ready["kv_scales"], "not_applicable")
            self.assertRegex(server.text(), r"KV cache dtype is bf16 \(the default\)\. The checkpoint's metadata wishes fp8_e4m3 .*no K/V scales")
            self.assertRegex(server.text(), r"Using KV cache dtype: bf16\b")
            self.assertNotIn(SENTENCE, server.text())

    def test_one_hash_everywhere(self):
        with Server(self.model) as server:
            head, text = server.call("/v1/precision")
            manifest = json.loads(text)
            logged = [line for line in server.log if "precision_manifest=" in line]
            self.assertEqual(len(logged), 1)
            self.assertEqual(json.loads(logged[0].split("precision_manifest=", 1)[1]), manifest)
            self.assertRegex(manifest["hash"], r"^[0-9a-f]{32}$")
            self.assertEqual(server.ready["manifest"], manifest["hash"])
            self.assertEqual(head["X-Sterling-Manifest"], manifest["hash"])
            self.assertEqual(json.loads(server.call("/ready")[1])["manifest"], manifest["hash"])
            self.assertEqual(server.metric("precision_info", f'manifest="{manifest["hash"]}"'), 1)
            head, text = server.call("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2})
            self.assertEqual(head["X-Sterling-Manifest"], manifest["hash"])
            self.assertEqual(json.loads(text)["system_fingerprint"], manifest["hash"])
            head, text = server.call("/v1/completions", {"prompt": [1, 2, 3], "max_tokens": 2, "stream": True})
            self.assertEqual(head["X-Sterling-Manifest"], manifest["hash"])
            chunk = json.loads(text.split("data: ", 1)[1].split("\n", 1)[0])
            self.assertEqual(chunk["system_fingerprint"], manifest["hash"])
            roles = {row["role"]: row for row in manifest["rows"]}
            self.assertEqual(roles["kv.keys"]["effective"], "bf16")
            self.assertEqual(roles["state.recurrent"]["effective"], "fp32")
            self.assertTrue(any(row["stored"] == "nvfp4" for row in manifest["rows"]))
        with Server(self.model, "--kv-cache-dtype", "bf16") as again:
            self.assertEqual(again.ready["manifest"], manifest["hash"], "who asked is no part of the hash")

    def test_fp8_without_scales_is_refused_with_the_ways_forward(self):
        for wish in ("fp8_e4m3", "fp8", "checkpoint", "fp8_e5m2"):
            log = self.refused("--kv-cache-dtype", wish)
            for part in ("there are none", "Looked for: tensors", "--accept-unscaled-kv", "fp8_e4m3_token", "sterling calibrate", "--kv-cache-dtype bf16"):
                self.assertIn(part, log)

    def test_accepted_ones_stay_visible(self):
        with Server(self.model, "--kv-cache-dtype", "fp8_e4m3", "--accept-unscaled-kv") as server:
            self.assertIn(SENTENCE, server.text())
            self.assertEqual(server.ready["kv_scales"], "defaulted_1.0")
            self.assertIs(json.loads(server.call("/ready")[1])["unscaled_kv_accepted"], True)
            self.assertEqual(server.metric("kv_unscaled_accepted"), 1)
            manifest = json.loads(server.call("/v1/precision")[1])
            self.assertIs(manifest["kv_cache"]["unscaled_accepted"], True)
            self.assertEqual(len(manifest["kv_cache"]["unscaled_layers"]), 2 * len(self.layers))

    def test_scales_of_a_file_are_used_and_hashed(self):
        hashes = set()
        for k in (0.5, 0.25):
            path = self.sidecar(f"kv{k}.json", k, 0.125)
            with Server(self.model, "--kv-cache-dtype", "fp8_e4m3", "--kv-scales", path) as server:
                self.assertEqual(server.ready["kv_cache_dtype"], "fp8_e4m3")
                self.assertEqual(server.ready["kv_scales"], "from_file")
                self.assertRegex(server.text(), r"Using KV cache dtype: fp8_e4m3\b")
                manifest = json.loads(server.call("/v1/precision")[1])
                self.assertEqual(manifest["kv_cache"]["scales"]["k"], [[k]] * len(self.layers))
                hashes.add(manifest["hash"])
        self.assertEqual(len(hashes), 2)

    def test_files_that_do_not_fit_are_refused_by_name(self):
        wrong = self.sidecar("wrong.json", 0.5, 0.5, layers=[0, *self.layers])
        log = self.refused("--kv-cache-dtype", "fp8_e4m3", "--kv-scales", wrong)
        self.assertIn("wrong.json", log)
        self.assertIn("layer 0, which has no KV cache", log)
        ones = self.sidecar("ones.json", 1, 1)
        log = self.refused("--kv-cache-dtype", "fp8_e4m3", "--kv-scales", ones)
        self.assertIn("all K scales of file ones.json are 1", log)
        self.assertIn("/nowhere/kv.json", self.refused("--kv-scales", "/nowhere/kv.json"))

    def test_k_and_v_may_differ_and_elements_are_counted(self):
        with Server(self.model, "--kv-cache-dtype-v", "fp8_e4m3_token") as server:
            self.assertEqual(server.ready["kv_cache_dtype"], "k=bf16,v=fp8_e4m3_token")
            self.assertEqual(server.ready["kv_scales"], "per_token")
            written = server.metric("kv_cache_elements_total", 'tensor="v",fate="written"') or 0
            server.call("/v1/completions", {"prompt": [1, 2, 3, 4], "max_tokens": 1})
            grown = server.metric("kv_cache_elements_total", 'tensor="v",fate="written"') - written
            self.assertGreater(grown, 0)
            self.assertEqual(server.metric("kv_cache_elements_total", 'tensor="v",fate="clipped"'), 0)
        with Server(self.model, "-ctk", "bf16", "--cache-type-v", "f32") as server:
            self.assertEqual(server.ready["kv_cache_dtype"], "k=bf16,v=fp32")

    def test_strict_stops_where_a_wish_is_not_met(self):
        log = self.refused("--kv-cache-dtype", "nonsense")
        self.assertIn("fp8_e4m3_token", log)
        plain = Path(self.folder.name) / "plain"
        shutil.copytree(SOURCE, plain)
        with Server(plain, "--kv-cache-dtype", "checkpoint", "--strict") as server:
            self.assertIsNone(server.ready)
            self.assertIn("--strict: kv.keys: requested checkpoint", server.text())
        with Server(plain, "--kv-cache-dtype", "checkpoint") as server:
            self.assertEqual(server.ready["kv_cache_dtype"], "bf16")
        with Server(self.model, "--strict") as server:
            self.assertIsNotNone(server.ready, server.text())

    def test_dry_run_prints_and_ends(self):
        command = [BINARY, "serve", str(self.model), "--dry-run"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"kv\.keys +\S+ +bf16 ")
        self.assertRegex(done.stdout, r"manifest [0-9a-f]{32}")
        self.assertIn("metadata wishes fp8_e4m3", done.stdout)
        refused = subprocess.run([*command, "--kv-cache-dtype", "fp8"], capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 2)


    def test_the_proof_runs_at_start_and_again_when_asked(self):
        with Server(self.model, "--kv-cache-dtype", "fp8_e4m3", "--kv-scales", self.sidecar("p.json", 0.5, 0.25)) as server:
            for check in ("kv.size", "kv.write", "kv.read", "kv.flip", "state", "weights", "logits"):
                self.assertIn(f"Proof of {check}: passed", server.text())
            self.assertIn("proof passed=true", server.text())
            before = json.loads(server.call("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "return_token_ids": True})[1])
            report = json.loads(server.call("/v1/precision/prove", {})[1])
            self.assertIs(report["passed"], True)
            self.assertEqual([c["check"] for c in report["checks"]], ["kv.size", "kv.write", "kv.read", "kv.flip", "state", "weights", "logits"])
            after = json.loads(server.call("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 8, "temperature": 0, "return_token_ids": True})[1])
            self.assertEqual(before["choices"][0]["token_ids"], after["choices"][0]["token_ids"])

    def test_running_requests_go_on_through_a_proof(self):
        body = {"prompt": [9, 8, 7], "max_tokens": 60, "temperature": 0, "return_token_ids": True, "ignore_eos": True}
        with Server(self.model) as server:
            alone = json.loads(server.call("/v1/completions", body)[1])["choices"][0]["token_ids"]
            answers = []
            runs = [threading.Thread(target=lambda: answers.append(json.loads(server.call("/v1/completions", body)[1]))) for _ in range(3)]
            for run in runs:
                run.start()
            for _ in range(5):
                self.assertIs(json.loads(server.call("/v1/precision/prove", {})[1])["passed"], True)
            for run in runs:
                run.join(60)
            self.assertEqual([answer["choices"][0]["token_ids"] for answer in answers], [alone] * 3)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
