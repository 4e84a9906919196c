#!/usr/bin/env python3
"""Greedy text of a real model: SmolLM2-135M-Instruct, from its Q4_1 GGUF.

    smollm2.py GGUF --server LLAMA_SERVER --out FILE.json

Two records per prompt:
  oracle     Hugging Face transformers in float32 on the exactly dequantised weights, the one to be held to
  llama_cpp  llama-server on the same file; it quantises activations to 8 bits before every product, so it is a peer, not a
             truth; `parts_at` says where it leaves the oracle's text and how near the oracle was to a tie there

Prompts are rendered with the chat template inside the file by Python's jinja2, and tokenised twice, by Python's `tokenizers` built
from the vocabulary in the file and by llama-server, which must agree.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import socket
import subprocess
import time
import urllib.request
from importlib import metadata
from pathlib import Path

import jinja2.sandbox
import numpy as np
import tokenizers
import torch
import transformers
from gguf import GGUFReader, dequantize
from tokenizers import decoders, models, pre_tokenizers

STEPS = 48

# (question, what a right answer contains or None). Those with an answer are checked: the oracle must give it.
QUESTIONS = [
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Japan?", "Tokyo"),
    ("What is the capital of Germany?", "Berlin"),
    ("How many days are there in a week?", "7"),
    ("What is the chemical symbol for water?", "H2O"),
    ("What is the largest ocean on Earth?", "Pacific"),
    ("Who wrote the play Hamlet?", "Shakespeare"),
    ("What gas do plants take in during photosynthesis?", "carbon dioxide"),
    ("Write a haiku about the sea.", None),
    ("Give me three tips for learning to cook.", None),
    ("Translate to French: Good morning, my friend! 🌞", None),
    ("Write a Python function that adds 2 numbers.", None),
    ("List the first 10 prime numbers.", None),
]


class Gguf:
    def __init__(self, path: Path):
        self.path, self.reader = path, GGUFReader(path)

    def __getitem__(self, key):
        return self.reader.fields[key].contents()

    def tensors(self) -> dict[str, torch.Tensor]:
        return {t.name: torch.from_numpy(np.array(dequantize(t.data, t.tensor_type), np.float32)) for t in self.reader.tensors}


def interleaved_to_halves(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama-family GGUF files store the rows of q and k with each rotary pair side by side; transformers wants the pair's
    partners half a head apart."""
    rows, columns = weight.shape
    pairs = rows // heads // 2
    return weight.reshape(heads, pairs, 2, columns).transpose(1, 2).reshape(rows, columns).contiguous()


def oracle_model(gguf: Gguf):
    heads, kv_heads = gguf["llama.attention.head_count"], gguf["llama.attention.head_count_kv"]
    config = transformers.LlamaConfig(
        vocab_size=gguf["llama.vocab_size"], hidden_size=gguf["llama.embedding_length"],
        intermediate_size=gguf["llama.feed_forward_length"], num_hidden_layers=gguf["llama.block_count"], num_attention_heads=heads,
        num_key_value_heads=kv_heads, max_position_embeddings=gguf["llama.context_length"], tie_word_embeddings=True,
        rms_norm_eps=gguf["llama.attention.layer_norm_rms_epsilon"],
        rope_parameters=dict(rope_type="default", rope_theta=gguf["llama.rope.freq_base"]))
    stored, state = gguf.tensors(), {}
    state["model.embed_tokens.weight"] = state["lm_head.weight"] = stored.pop("token_embd.weight")
    state["model.norm.weight"] = stored.pop("output_norm.weight")
    names = dict(attn_norm="input_layernorm", ffn_norm="post_attention_layernorm", attn_q="self_attn.q_proj", attn_k="self_attn.k_proj",
                 attn_v="self_attn.v_proj", attn_output="self_attn.o_proj", ffn_gate="mlp.gate_proj", ffn_up="mlp.up_proj",
                 ffn_down="mlp.down_proj")
    for name, tensor in stored.items():
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):
            tensor = interleaved_to_halves(tensor, heads if part == "attn_q" else kv_heads)
        state[f"model.layers.{layer}.{names[part]}.weight"] = tensor
    model = transformers.LlamaForCausalLM._from_config(config, dtype=torch.float32, attn_implementation="eager")
    model.load_state_dict(state, strict=True)
    return model.eval()


def greedy(model, ids: list[int], end: int) -> tuple[list[int], list[float]]:
    tokens, margins, cache, step = [], [], None, ids
    while len(tokens) < STEPS and (not tokens or tokens[-1] != end):
        out = model(input_ids=torch.tensor([step]), use_cache=True, cache=cache)
        top = out.logits[0, -1].topk(2)
        tokens.append(int(top.indices[0]))
        margins.append(round(float(top.values[0] - top.values[1]), 6))
        cache, step = out.cache, tokens[-1:]
    return tokens, margins


def python_tokenizer(gguf: Gguf) -> tokenizers.Tokenizer:
    """SmolLM2's: digits one by one, then GPT-2's byte-level split and merges; control tokens are matched whole."""
    vocabulary = gguf["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in gguf["tokenizer.ggml.merges"]]
    out = tokenizers.Tokenizer(models.BPE({token: i for i, token in enumerate(vocabulary)}, merges))
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens([t for t, kind in zip(vocabulary, gguf["tokenizer.ggml.token_type"]) if kind == 3])
    return out


@contextlib.contextmanager
def llama_server(binary: Path, model: Path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binary), "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "-np", "1", "-t", "1", "-ngl", "0", "--no-webui"]
    with open("/dev/null", "w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    url = f"http://127.0.0.1:{port}"

    def post(path: str, body: dict) -> dict:
        request = urllib.request.Request(url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    try:
        for _ in range(240):
            if process.poll() is not None:
                raise SystemExit(f"{binary} ended with {process.returncode}")
            with contextlib.suppress(OSError):
                urllib.request.urlopen(url + "/health", timeout=2)
                break
            time.sleep(0.25)
        yield post
    finally:
        process.terminate()
        process.wait(30)


def llama_cpp_greedy(post, ids: list[int], end: int) -> tuple[list[int], list[float]]:
    answer = post("/completion", {"prompt": ids, "n_predict": STEPS, "temperature": 0, "top_k": 1, "n_probs": 2, "cache_prompt": False,
                                  "return_tokens": True, "samplers": ["top_k"]})
    tokens, margins = [], []
    for step in answer["completion_probabilities"]:
        tokens.append(step["id"])
        best = sorted((p["logprob"] for p in step["top_logprobs"]), reverse=True)
        margins.append(round(best[0] - best[1], 6))
    return tokens, margins


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("gguf", type=Path)
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_grad_enabled(False)
    torch.set_num_threads(1)

    gguf = Gguf(arguments.gguf)
    end = gguf["tokenizer.ggml.eos_token_id"]
    template = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(gguf["tokenizer.chat_template"])
    tokenizer, model, prompts = python_tokenizer(gguf), oracle_model(gguf), []
    version = subprocess.run([arguments.server, "--version"], capture_output=True, text=True, check=False)
    with llama_server(arguments.server, arguments.gguf) as post:
        for question, expected in QUESTIONS:
            text = template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            theirs = post("/tokenize", {"content": text, "add_special": False, "parse_special": True})["tokens"]
            if ids != theirs:
                raise SystemExit(f"{question!r}: tokenizers and llama.cpp disagree:\n{ids}\n{theirs}")
            tokens, margins = greedy(model, ids, end)
            answer = tokenizer.decode([t for t in tokens if t != end])
            if expected is not None and expected not in answer:
                raise SystemExit(f"{question!r}: the oracle says {answer!r}, which lacks {expected}")
            peer_tokens, peer_margins = llama_cpp_greedy(post, ids, end)
            parts = next((i for i, (a, b) in enumerate(zip(tokens, peer_tokens)) if a != b), None)
            prompts.append({
                "question": question, "answer_contains": expected, "text": text, "ids": ids,
                "oracle": {"tokens": tokens, "margins": margins, "text": answer},
                "llama_cpp": {"tokens": peer_tokens, "margins": peer_margins, "parts_at": parts,
                              "oracle_margin_there": None if parts is None else margins[parts]},
            })
            print(f"{question}\n    {answer!r}\n    smallest margin {min(margins):.3f}; llama.cpp parts at {parts}"
                  + ("" if parts is None else f", margin {margins[parts]:.3f}"), flush=True)
    packages = ("torch", "transformers", "tokenizers", "gguf", "numpy")
    record = {
        "what": "Greedy text of SmolLM2-135M-Instruct (Q4_1 GGUF); made by tools/golden/smollm2.py",
        "model": {"file": arguments.gguf.name, "bytes": arguments.gguf.stat().st_size,
                  "sha256": hashlib.sha256(arguments.gguf.read_bytes()).hexdigest()},
        "versions": {p: metadata.version(p) for p in packages}
        | {"llama_cpp": (version.stdout + version.stderr).strip().splitlines()[0].removeprefix("version: ")},
        "meaning": {
            "ids": "token ids of text, no special tokens added",
            "oracle": f"transformers float32 on the dequantised weights, up to {STEPS} tokens or the end token {end} (included); margins: largest minus second largest logit",
            "llama_cpp": "the same from llama-server, 1 thread; it stops before the end token; margins of log probabilities. parts_at: first differing step within both texts",
        },
        "end_token": end,
        "prompts": prompts,
    }
    arguments.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
