#!/usr/bin/env python3
"""How long `sterling inspect` takes on a checkpoint with very many tensors, and how much memory.

Makes headers alone: shards with a true safetensors header and sparse data (scalar scales are written, all else are holes), the
shape of an NVFP4 mixture of experts: 370,000 tensors over 240 shards unless told otherwise. Times several runs with the files in the page
cache and prints the fastest and the peak of resident memory. Exit 1 when a bound is missed.

    bench/inspect_headers.py --binary build/release/sterling [--shards 240] [--layers 60] [--experts 512] [--runs 5]
"""
import argparse
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
import time

HIDDEN, INNER, VOCAB = 64, 32, 256


def tensors_of(layers, experts):
    """Name, dtype, shape and the value of scalars, in the order of a model."""
    yield "model.embed_tokens.weight", "BF16", [VOCAB, HIDDEN]
    yield "model.norm.weight", "BF16", [HIDDEN]
    yield "lm_head.weight", "BF16", [VOCAB, HIDDEN]
    for i in range(layers):
        layer = f"model.layers.{i}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{layer}{norm}.weight", "BF16", [HIDDEN]
        for norm in ("q_norm", "k_norm"):
            yield f"{layer}self_attn.{norm}.weight", "BF16", [16]
        for name, rows, cols in (("q", 64, 64), ("k", 32, 64), ("v", 32, 64), ("o", 64, 64)):
            yield f"{layer}self_attn.{name}_proj.weight", "BF16", [rows, cols]
        yield f"{layer}mlp.gate.weight", "BF16", [experts, HIDDEN]
        for expert in range(experts):
            for name, rows, cols in (("gate", INNER, HIDDEN), ("up", INNER, HIDDEN), ("down", HIDDEN, INNER)):
                module = f"{layer}mlp.experts.{expert}.{name}_proj."
                yield module + "weight", "U8", [rows, cols // 2]
                yield module + "weight_scale", "F8_E4M3", [rows, cols // 16]
                yield module + "weight_scale_2", "F32", []
                yield module + "input_scale", "F32", []


SIZES = {"BF16": 2, "F32": 4, "U8": 1, "F8_E4M3": 1}


def write_shard(path, tensors):
    """Scalars come last, beside one another: a few pages hold them all."""
    scalars = 0
    ordered = [t for t in tensors if t[2]] + [t for t in tensors if not t[2]]
    header, offset = {}, 0
    for name, dtype, shape in ordered:
        size = SIZES[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
        scalars += not shape
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        out.truncate(8 + len(text) + offset)
        out.seek(8 + len(text) + offset - 4 * scalars)
        out.write(struct.pack("<f", 0.03125) * scalars)


def make(folder, layers, experts, shards):
    tensors = list(tensors_of(layers, experts))
    share = -(-len(tensors) // shards)
    where = {}
    for i in range(shards):
        name = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = tensors[i * share:(i + 1) * share]
        write_shard(os.path.join(folder, name), part)
        where.update((tensor[0], name) for tensor in part)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
        json.dump({"metadata": {}, "weight_map": where}, out)
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": HIDDEN, "intermediate_size": INNER,
        "moe_intermediate_size": INNER, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 16, "vocab_size": VOCAB, "num_experts": experts, "num_experts_per_tok": 8, "norm_topk_prob": True,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": False,
        "rope_theta": 1e6, "attention_bias": False, "torch_dtype": "bfloat16", "decoder_sparse_step": 1, "mlp_only_layers": [],
    }
    with open(os.path.join(folder, "config.json"), "w") as out:
        json.dump(config, out)
    quantization = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16,
                    "exclude_modules": ["lm_head", *[f"model.layers.{i}.self_attn*" for i in range(layers)]]}
    with open(os.path.join(folder, "hf_quant_config.json"), "w") as out:
        json.dump({"producer": {"name": "modelopt"}, "quantization": quantization}, out)
    return len(tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", required=True)
    parser.add_argument("--layers", type=int, default=60)
    parser.add_argument("--experts", type=int, default=512)
    parser.add_argument("--shards", type=int, default=240)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="bound on the fastest run")
    parser.add_argument("--bytes", type=int, default=10**9, help="bound on peak resident memory")
    parser.add_argument("--keep", help="make the checkpoint in this folder and leave it there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        os.makedirs(folder, exist_ok=True)
        count = make(folder, arguments.layers, arguments.experts, arguments.shards)
        times = []
        for _ in range(arguments.runs):
            begin = time.monotonic()
            done = subprocess.run([arguments.binary, "inspect", folder, "--json"], capture_output=True, text=True, check=True)
            times.append(time.monotonic() - begin)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        document = json.loads(done.stdout)
        found = sum(group["tensors"] for group in document["weights"])
    print(json.dumps({"tensors": count, "counted": found, "shards": arguments.shards, "supported": document["supported"],
                      "seconds": [round(t, 3) for t in sorted(times)], "peak_bytes": peak}))
    return 0 if found == count and min(times) < arguments.seconds and peak < arguments.bytes else 1


if __name__ == "__main__":
    sys.exit(main())
