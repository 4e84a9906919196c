#!/usr/bin/env python3
"""What each type of KV cache costs the recall model, also where its K is scaled up so that FP8 with a scale of 1.0 clips.

    python compare_kv.py STERLING [--model FOLDER] [--factors 1,256,4096] [--json FILE]

Every copy is the same exact model (scale_k.py), so a difference between rows of one factor is the cache's. `calibrated` scales are the
largest |K| and |V| that `sterling calibrate` finds in the prompts, over 448.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import threading
import urllib.request

import scale_k

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {
    "fp32": ["--kv-cache-dtype", "fp32"],
    "bf16": [],
    "fp8_e4m3_token": ["--kv-cache-dtype", "fp8_e4m3_token"],
    "fp8_e4m3, calibrated": ["--kv-cache-dtype", "fp8_e4m3", "--kv-scales", "{scales}"],
    "fp8_e4m3 at 1.0": ["--kv-cache-dtype", "fp8_e4m3", "--accept-unscaled-kv"],
    "fp8_e5m2 at 1.0": ["--kv-cache-dtype", "fp8_e5m2", "--accept-unscaled-kv"],
}


class Server:
    def __init__(self, binary, model, flags):
        command = [binary, "serve", str(model), "--port", "0", *flags]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        log = []
        for line in self.process.stderr:
            log.append(line)
            if " ready address=" in line:
                self.url = line.split("ready address=")[1].split()[0]
                break
        else:
            raise RuntimeError("the server did not start:\n" + "".join(log))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def logprobs(self, ids):
        body = {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0, "temperature": 0}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)["choices"][0]["logprobs"]["token_logprobs"]

    def stop(self):
        self.process.terminate()
        self.process.wait(60)


def measure(binary, model, prompts, flags):
    """Answers whose probability is above one half, of how many, and their mean log probability."""
    server = Server(binary, model, flags)
    try:
        values = [server.logprobs(p["ids"])[at + 1] for p in prompts for at in p["positions"]]
    finally:
        server.stop()
    return {"recalled": sum(v > math.log(0.5) for v in values), "questions": len(values), "mean_logprob": sum(values) / len(values)}


def calibrate(binary, model, prompts, path):
    source = path.with_suffix(".jsonl")
    source.write_text("".join(json.dumps({"tokens": p["ids"]}) + "\n" for p in prompts))
    subprocess.run([binary, "calibrate", str(model), "--prompts", str(source), "--out", str(path), "--method", "amax"], check=True, capture_output=True)


def compare(binary, model, factor, kinds=None):
    """{kind: what measure() says} for the copy of `model` with this factor."""
    prompts = [json.loads(line) for line in (model / "prompts.jsonl").read_text().splitlines()]
    result = {}
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder) / "scaled"
        scale_k.scale_k(model, copy, factor)
        for kind in kinds or KINDS:
            scales = pathlib.Path(folder) / "scales.json"
            if "{scales}" in KINDS[kind] and not scales.exists():
                calibrate(binary, copy, prompts, scales)
            result[kind] = measure(binary, copy, prompts, [flag.format(scales=scales) for flag in KINDS[kind]])
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--model", type=pathlib.Path, default=ROOT / "tests/models/recall")
    parser.add_argument("--factors", default="1,256,4096")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    results = {}
    for factor in args.factors.split(","):
        results[factor] = compare(args.binary, args.model, float(factor))
        for kind, row in results[factor].items():
            print(f"K x {factor:<6} {kind:<22} {row['recalled']:>5} of {row['questions']} recalled, mean log probability {row['mean_logprob']:.6f}", flush=True)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    sys.exit(main())
