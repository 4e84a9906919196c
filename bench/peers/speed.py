#!/usr/bin/env python3
"""Sterling against llama.cpp: the same BF16 weights, the same machine, in turn.

    tools/peers/install_llama_cpp.sh                       prints LLAMA_BIN
    tools/peers/make_bench_model.py                        prints MODEL
    bench/peers/speed.py --sterling build/release/sterling --llama-bin LLAMA_BIN --model MODEL [--json FILE]

Each round measures one side directly after the other, and which goes first alternates, so that a machine that slows down hurts both.
Figures are medians over the rounds.

  prefill   llama.cpp: llama-bench, a prompt of --prompt tokens (its batch takes all of them at once)
            Sterling: over HTTP, --prompt random token ids / time to the first streamed token, parsing and transport included
  decode    llama.cpp: llama-bench, --generate tokens after --prompt tokens of context
            Sterling: tokens after the first / time from the first to the last, same context, over HTTP

llama.cpp is measured without its server, which favours it. Floors of the project: decode 0.7, prefill 1.0 times llama.cpp. Exit 0 when both
are met, 3 when not, 1 on failure. Python's standard library only; a C compiler, if there is one, for the read bandwidth.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
FLOORS = {"decode": 0.7, "prefill": 1.0}


# ---- the machine -----------------------------------------------------------------------------------------------------


def machine() -> dict:
    info = {"cpu": None, "cpus": len(os.sched_getaffinity(0)), "isa": [], "memory_bytes": None, "caches": {}}
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16")
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                info["cpu"] = value.strip()
            elif name.strip() == "flags":
                info["isa"] = [flag for flag in wanted if flag in value.split()]
    with contextlib.suppress(OSError, ValueError):
        info["memory_bytes"] = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        with contextlib.suppress(OSError):
            if (index / "type").read_text().strip() != "Instruction":
                info["caches"]["L" + (index / "level").read_text().strip()] = (index / "size").read_text().strip()
    return info


def build_bandwidth_probe(folder: Path) -> Path | None:
    compiler = next((c for c in ("cc", "gcc", "clang") if shutil.which(c)), None)
    if compiler is None:
        return None
    binary = folder / "read_bandwidth"
    command = [compiler, "-O3", "-march=native", "-pthread", str(HERE / "read_bandwidth.c"), "-o", str(binary)]
    return binary if subprocess.run(command, check=False).returncode == 0 else None


def read_bandwidth(probe: Path | None, threads: int) -> float | None:
    if probe is None:
        return None
    done = subprocess.run([probe, str(threads)], capture_output=True, text=True, check=False)
    return float(done.stdout) if done.returncode == 0 else None


# ---- llama.cpp -------------------------------------------------------------------------------------------------------


def llama_bench(binary: Path, gguf: Path, threads: int, prompt: int, generate: int, depth: int) -> float:
    """Tokens per second of one run."""
    command = [binary, "-m", gguf, "-t", threads, "-p", prompt, "-n", generate, "-d", depth, "-r", 1, "-ngl", 0, "-o", "json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{binary} failed ({done.returncode}):\n{done.stderr.strip()[-2000:]}")
    return float(json.loads(done.stdout)[0]["avg_ts"])


# ---- servers ---------------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def server(command: list, port: int, ready_path: str, log: Path):
    with log.open("w") as sink:
        process = subprocess.Popen([str(part) for part in command], stdout=sink, stderr=sink, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 300
        while True:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{command[0]} did not become ready (exit {process.returncode}):\n{log.read_text()[-2000:]}")
            with contextlib.suppress(OSError, http.client.HTTPException):
                if request(port, "GET", ready_path)[0] == 200:
                    break
            time.sleep(0.2)
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def request(port: int, method: str, path: str, body: dict | None = None) -> tuple[int, dict | None]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        payload = None if body is None else json.dumps(body)
        connection.request(method, path, payload, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        data = answer.read()
    finally:
        connection.close()
    with contextlib.suppress(ValueError):
        return answer.status, json.loads(data)
    return answer.status, None


def stream_completion(port: int, model: str, ids: list[int], generate: int) -> dict:
    """One greedy completion -> seconds to the first token, tokens per second after it, the token ids."""
    body = {"model": model, "prompt": ids, "max_tokens": generate, "temperature": 0, "stream": True, "return_token_ids": True,
            "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    tokens, first, last, usage = [], None, None, None
    start = time.perf_counter()
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        raise SystemExit(f"POST /v1/completions: {answer.status} {answer.read()[:1000]!r}")
    first_batch = 0
    for line in answer:
        if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise SystemExit(f"POST /v1/completions: {event}")
        usage = event.get("usage") or usage
        new = [token for choice in event["choices"] for token in choice.get("token_ids") or []]
        if new:
            now = time.perf_counter()
            if first is None:
                first, first_batch = now, len(new)
            last = now
            tokens += new
    connection.close()
    if first is None or len(tokens) != generate:
        raise SystemExit(f"POST /v1/completions: asked for {generate} tokens, got {len(tokens)} (usage {usage})")
    return {"ttft": first - start, "decode": (len(tokens) - first_batch) / (last - first), "tokens": tokens, "usage": usage}


def sterling_round(port: int, model: str, ids: list[int], generate: int) -> dict:
    got = stream_completion(port, model, ids, generate + 1)
    cached = ((got["usage"] or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if cached:
        raise SystemExit(f"{cached} prompt tokens came from the prefix cache: not a prefill measurement")
    return {"prefill": len(ids) / got["ttft"], "decode": got["decode"], "tokens": got["tokens"]}


# ---- the comparison --------------------------------------------------------------------------------------------------


def same_text(arguments, sterling_tokens: list[int], ids: list[int], folder: Path) -> dict | None:
    """Do both sides run the same model? llama-server's greedy tokens for the same prompt, up to the first difference."""
    binary = arguments.llama_bin / "llama-server"
    if not binary.exists():
        return None
    port = free_port()
    command = [binary, "-m", arguments.gguf, "--host", "127.0.0.1", "--port", port, "-t", arguments.threads, "-c", 4096, "-np", 1, "-ngl", 0]
    with server(command, port, "/health", folder / "llama-server.log"):
        body = {"prompt": ids, "n_predict": len(sterling_tokens), "temperature": 0, "samplers": ["top_k"], "top_k": 1, "return_tokens": True,
                "cache_prompt": False, "ignore_eos": True}
        status, answer = request(port, "POST", "/completion", body)
    if status != 200 or answer is None:
        return None
    theirs = answer["tokens"]
    equal = next((i for i, (a, b) in enumerate(zip(sterling_tokens, theirs)) if a != b), min(len(theirs), len(sterling_tokens)))
    return {"tokens": len(sterling_tokens), "equal_before_first_difference": equal}


def measure(arguments, folder: Path) -> dict:
    # Before the server starts, so that nothing else holds the cores or the caches.
    bandwidth = read_bandwidth(build_bandwidth_probe(folder), arguments.threads)
    vocabulary = json.loads((arguments.hf / "config.json").read_text())["vocab_size"]
    draw = random.Random(arguments.seed)
    bench = arguments.llama_bin / "llama-bench"
    rounds, text = [], None
    port = free_port()
    command = [arguments.sterling, "serve", arguments.hf, "--host", "127.0.0.1", "--port", port, "--threads", arguments.threads,
               *arguments.sterling_flag]
    with server(command, port, "/ready", folder / "sterling.log"):
        model = request(port, "GET", "/v1/models")[1]["data"][0]["id"]

        def ours() -> dict:
            ids = [draw.randrange(vocabulary - 8) for _ in range(arguments.prompt)]  # fresh: no prefix cache can help
            return sterling_round(port, model, ids, arguments.generate) | {"ids": ids}

        def theirs() -> dict:
            return {"prefill": llama_bench(bench, arguments.gguf, arguments.threads, arguments.prompt, 0, 0),
                    "decode": llama_bench(bench, arguments.gguf, arguments.threads, 0, arguments.generate, arguments.prompt)}

        ours(), theirs()  # warm-up: page cache, clocks
        for index in range(arguments.rounds):
            order = (("sterling", ours), ("llama_cpp", theirs))
            result = {name: side() for name, side in (order if index % 2 == 0 else reversed(order))}
            rounds.append(result)
            print(f"round {index + 1}: " + "  ".join(f"{name} prefill {result[name]['prefill']:.1f} decode {result[name]['decode']:.2f} tokens/s"
                                                      for name, _ in order), file=sys.stderr, flush=True)
    last = rounds[-1]["sterling"]
    text = same_text(arguments, last["tokens"], last["ids"], folder)

    weights = arguments.gguf.stat().st_size
    out = {"machine": machine(), "threads": arguments.threads, "model": str(arguments.gguf.name), "weight_bytes": weights,
           "prompt_tokens": arguments.prompt, "generated_tokens": arguments.generate, "rounds": arguments.rounds,
           "read_bandwidth_bytes_per_s": bandwidth, "same_model": text, "results": {}}
    for what in ("prefill", "decode"):
        sides = {name: [r[name][what] for r in rounds] for name in ("sterling", "llama_cpp")}
        medians = {name: statistics.median(values) for name, values in sides.items()}
        ratio = medians["sterling"] / medians["llama_cpp"]
        out["results"][what] = {name: {"median": medians[name], "all": values} for name, values in sides.items()}
        out["results"][what] |= {"ratio": ratio, "floor": FLOORS[what], "met": ratio >= FLOORS[what]}
    if bandwidth:  # every decoded token reads every weight but the embedding table's other rows
        out["decode_share_of_bandwidth"] = {name: out["results"]["decode"][name]["median"] * weights / bandwidth for name in ("sterling", "llama_cpp")}
    return out


def report(result: dict) -> str:
    box = result["machine"]
    lines = [f"{box['cpu']}, {box['cpus']} CPUs, {' '.join(box['isa'])}; {result['threads']} threads"]
    if result["read_bandwidth_bytes_per_s"]:
        shares = result["decode_share_of_bandwidth"]
        lines.append(f"read bandwidth {result['read_bandwidth_bytes_per_s'] / 1e9:.1f} GB/s; decoding reads weights at "
                     f"{shares['sterling']:.0%} of it (Sterling), {shares['llama_cpp']:.0%} (llama.cpp)")
    lines.append(f"{result['model']}, {result['weight_bytes'] / 1e9:.2f} GB; {result['prompt_tokens']} prompt tokens, {result['generated_tokens']} generated; medians of {result['rounds']} rounds")
    lines.append(f"{'tokens/s':<10}{'Sterling':>12}{'llama.cpp':>12}{'ratio':>9}{'floor':>8}")
    for what, row in result["results"].items():
        lines.append(f"{what:<10}{row['sterling']['median']:>12.2f}{row['llama_cpp']['median']:>12.2f}{row['ratio']:>9.2f}{row['floor']:>8.1f}"
                     + ("" if row["met"] else "   below the floor"))
    if result["same_model"]:
        same = result["same_model"]
        lines.append(f"greedy text equal for {same['equal_before_first_difference']} of {same['tokens']} tokens")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sterling", type=Path, default=HERE.parents[1] / "build" / "release" / "sterling")
    parser.add_argument("--llama-bin", type=Path, required=True, help="folder with llama-bench (and llama-server)")
    parser.add_argument("--model", type=Path, required=True, help="folder made by tools/peers/make_bench_model.py")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sterling-flag", action="append", default=[], metavar="FLAG", help="passed on to sterling serve; repeatable")
    parser.add_argument("--json", type=Path, help="write the result here too")
    arguments = parser.parse_args()
    arguments.hf, arguments.gguf = arguments.model / "hf", arguments.model / "model-bf16.gguf"
    for path in (arguments.sterling, arguments.llama_bin / "llama-bench", arguments.hf / "config.json", arguments.gguf):
        if not path.exists():
            parser.error(f"{path} does not exist")
    with tempfile.TemporaryDirectory() as folder:
        result = measure(arguments, Path(folder))
    print(report(result))
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if all(row["met"] for row in result["results"].values()) else 3


if __name__ == "__main__":
    raise SystemExit(main())
