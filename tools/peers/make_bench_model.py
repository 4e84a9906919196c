#!/usr/bin/env python3
"""A random-weight model for speed comparisons: the same BF16 weights as a Hugging Face checkpoint and as GGUF.

    make_bench_model.py [--out DIR] [--seed N]      DIR defaults to $XDG_CACHE_HOME/sterling-peers/bench-model

Writes DIR/hf/ (config.json, tokenizer.json, model.safetensors) and DIR/model-bf16.gguf, about 1 GB each; does nothing when both are there.
A llama of half a billion parameters: small enough for any machine, large enough (beyond every cache) that decoding runs from memory.
Weights are scaled so that activations stay sane through all layers; the row of the end token in the output matrix is zero, so greedy
decoding never stops early. Needs numpy, ml_dtypes, safetensors and gguf (tools/golden/requirements.txt).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

HIDDEN, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 1536, 4096, 16, 24, 8, 64, 32768
THETA, CONTEXT, EPS = 500000.0, 8192, 1e-5
END = VOCAB - 1


def shapes() -> dict[str, tuple[int, ...]]:
    out = {"model.embed_tokens.weight": (VOCAB, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (VOCAB, HIDDEN)}
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        out |= {
            p + "input_layernorm.weight": (HIDDEN,),
            p + "self_attn.q_proj.weight": (HEADS * HEAD_DIM, HIDDEN),
            p + "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            p + "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, HIDDEN),
            p + "self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_DIM),
            p + "post_attention_layernorm.weight": (HIDDEN,),
            p + "mlp.gate_proj.weight": (INNER, HIDDEN),
            p + "mlp.up_proj.weight": (INNER, HIDDEN),
            p + "mlp.down_proj.weight": (HIDDEN, INNER),
        }
    return out


def draw(name: str, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.Generator(np.random.Philox(key=[seed, sum(ord(c) * 257**i % 2**61 for i, c in enumerate(name)) % 2**61]))
    if len(shape) == 1:
        return np.ones(shape, ml_dtypes.bfloat16)
    values = rng.standard_normal(shape, np.float32)
    if "embed" not in name:
        values *= 2.0 * shape[-1] ** -0.5 if "lm_head" in name else shape[-1] ** -0.5
    if "lm_head" in name:
        values[END] = 0
    return values.astype(ml_dtypes.bfloat16)


def vocabulary() -> list[str]:
    """The 256 byte tokens of byte-level BPE, then ASCII fillers, then the end token. No merges: it only has to be valid."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters, extra = {}, 0
    for byte in range(256):
        letters[byte] = chr(byte) if byte in printable else chr(256 + extra)
        extra += byte not in printable
    return [letters[b] for b in range(256)] + [f"t{i}" for i in range(256, END)] + ["<|end|>"]


def write_hf(folder: Path, tensors: dict[str, np.ndarray]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(
        architectures=["LlamaForCausalLM"], model_type="llama", dtype="bfloat16", vocab_size=VOCAB, hidden_size=HIDDEN,
        intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD_DIM,
        hidden_act="silu", rms_norm_eps=EPS, max_position_embeddings=CONTEXT, tie_word_embeddings=False, attention_bias=False,
        mlp_bias=False, bos_token_id=END, eos_token_id=END, rope_theta=THETA, rope_scaling=None)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    words = vocabulary()
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": byte_level, "post_processor": None,
        "decoder": byte_level,
        "added_tokens": [{"id": END, "content": words[END], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                  "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": {w: i for i, w in enumerate(words)}, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": words[END]}) + "\n")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def halves_to_interleaved(weight: np.ndarray, heads: int) -> np.ndarray:
    """llama-family GGUF wants the two partners of a rotary pair in neighbouring rows."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def write_gguf(path: Path, tensors: dict[str, np.ndarray]) -> None:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("sterling bench model")
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(THETA)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_vocab_size(VOCAB)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    words = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(words)
    writer.add_token_types([1] * END + [3])
    writer.add_token_merges(["t 2"])  # llama.cpp wants a non-empty list; this pair never meets (no token is "t2")
    writer.add_bos_token_id(END)
    writer.add_eos_token_id(END)
    writer.add_add_bos_token(False)
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
             "mlp.down_proj": "ffn_down"}
    for name, tensor in tensors.items():
        stem = name.removesuffix(".weight")
        if stem in ("model.embed_tokens", "model.norm", "lm_head"):
            target = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}[stem]
        else:
            _, _, layer, part = stem.split(".", 3)
            target = f"blk.{layer}.{names[part]}"
            if part in ("self_attn.q_proj", "self_attn.k_proj"):
                tensor = halves_to_interleaved(tensor, HEADS if "q_proj" in part else KV_HEADS)
        if tensor.ndim == 1:
            writer.add_tensor(target + ".weight", tensor.astype(np.float32))
        else:
            # The writer takes BF16 as bytes; it derives the shape from the row length in bytes.
            raw = np.ascontiguousarray(tensor).view(np.uint8)
            writer.add_tensor(target + ".weight", raw, raw_dtype=gguf.GGMLQuantizationType.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parser.add_argument("--out", type=Path, default=cache / "sterling-peers" / "bench-model")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    done = arguments.out / "done"
    if not done.exists() or done.read_text() != f"{arguments.seed}\n":
        tensors = {name: draw(name, shape, arguments.seed) for name, shape in shapes().items()}
        write_hf(arguments.out / "hf", tensors)
        write_gguf(arguments.out / "model-bf16.gguf", tensors)
        done.write_text(f"{arguments.seed}\n")
    print(arguments.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
