"""Writes tests/data/gguf: small GGUF files and what their tensors mean in FP32, with the PyPI package `gguf` as writer and oracle.

    pip install gguf numpy
    python tools/quant/make_gguf_fixtures.py tests/data/gguf

type_<TYPE>.gguf    tensor "stored" [3, 512] of that type, made of random bytes under scales that cover zero, negative, subnormal
                    and the largest FP16 numbers; tensor "expected" [3, 512] F32: the oracle's values.
llama.gguf          a tiny model of architecture llama: Q and K permuted for interleaved RoPE, quantised types mixed, tokenizer,
                    chat template, rope_freqs. llama.expected.gguf holds its tensors but the MLP as
                    F32, Q and K in Hugging Face's order.
Deterministic: a second run writes the same bytes.
"""

import pathlib
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import quants

# Per type: bytes of a block, and where its FP16 scales lie.
BLOCKS = {
    Type.Q4_0: (18, [0]),
    Type.Q4_1: (20, [0, 2]),
    Type.Q5_0: (22, [0]),
    Type.Q5_1: (24, [0, 2]),
    Type.Q8_0: (34, [0]),
    Type.Q4_K: (144, [0, 2]),
    Type.Q5_K: (176, [0, 2]),
    Type.Q6_K: (210, [208]),
}
SPECIAL_SCALES = [0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00, 0xBC00]
ROWS, COLUMNS = 3, 512


def random_blocks(rng, kind):
    """Random bytes; the scales finite, each special one at least tried."""
    size, scale_offsets = BLOCKS[kind]
    elements = quants.GGML_QUANT_SIZES[kind][0]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
    for number, offset in enumerate(scale_offsets):
        scales = rng.normal(0, 0.02, len(blocks)).astype(np.float16).view(np.uint16)
        for i, special in enumerate(SPECIAL_SCALES):
            if 2 * i + number < len(scales):
                scales[2 * i + number] = special
        if len(scales) < 2 * len(SPECIAL_SCALES):
            scales[-1] = SPECIAL_SCALES[3]
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(ROWS, -1)


def write(path, arch, fill):
    writer = gguf.GGUFWriter(str(path), arch)
    fill(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_types(out, rng):
    for kind in BLOCKS:
        stored = random_blocks(rng, kind)
        expected = quants.dequantize(stored, kind)
        assert expected.shape == (ROWS, COLUMNS) and expected.dtype == np.float32 and np.isfinite(expected).all()

        def fill(writer, stored=stored, expected=expected, kind=kind):
            writer.add_tensor("stored", stored, raw_dtype=kind)
            writer.add_tensor("expected", expected)

        write(out / f"type_{kind.name}.gguf", "test", fill)

    bits = rng.integers(0, 1 << 16, (ROWS, COLUMNS), dtype=np.uint16)
    bits[0, :6] = [0x0000, 0x8000, 0x0001, 0x83FF, 0x7C00, 0xFC00]
    half = bits.copy()
    half[np.isnan(half.view(np.float16))] = 0x3555
    write_plain(out, "F16", half.view(np.float16), None, half.view(np.float16).astype(np.float32))
    brain = bits.copy()
    brain[np.isnan((brain.astype(np.uint32) << 16).view(np.float32))] = 0x3EAB
    expected = quants.dequantize(brain.view(np.uint8).reshape(ROWS, -1), Type.BF16)
    write_plain(out, "BF16", brain.view(np.uint8).reshape(ROWS, -1), Type.BF16, expected)


def write_plain(out, name, stored, raw, expected):
    def fill(writer):
        writer.add_tensor("stored", stored, raw_dtype=raw)
        writer.add_tensor("expected", expected)

    write(out / f"type_{name}.gguf", "test", fill)


def permute(weight, heads):
    """How llama.cpp's converter lays out Q and K: within a head, row i of the first half beside row i of the second."""
    return weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def unpermute(weight, heads):
    return weight.reshape(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:]).swapaxes(1, 2).reshape(weight.shape)


def write_llama(out, rng):
    hidden, inner, heads, kv_heads, head_dim, vocabulary = 32, 32, 4, 2, 8, 12
    stored, expected = {}, {}

    def add(name, shape, kind, order=None):
        values = rng.normal(0, 0.05, shape).astype(np.float32)
        data = order(values) if order else values
        raw = quants.quantize(data, kind)
        meaning = quants.dequantize(raw, kind)
        stored[name] = (raw, kind)
        if order is not None:
            count = heads if "attn_q" in name else kv_heads
            meaning = unpermute(meaning, count)
            assert np.array_equal(permute(meaning, count), quants.dequantize(raw, kind))
        if "ffn" not in name:
            expected[name] = meaning

    add("token_embd.weight", (vocabulary, hidden), Type.Q8_0)
    add("output_norm.weight", (hidden,), Type.F32)
    add("rope_freqs.weight", (head_dim // 2,), Type.F32)
    for layer in range(2):
        prefix = f"blk.{layer}."
        add(prefix + "attn_norm.weight", (hidden,), Type.F32)
        add(prefix + "ffn_norm.weight", (hidden,), Type.F32)
        add(prefix + "attn_q.weight", (heads * head_dim, hidden), Type.Q4_1 if layer else Type.Q8_0, lambda w: permute(w, heads))
        add(prefix + "attn_k.weight", (kv_heads * head_dim, hidden), Type.F16 if layer else Type.Q5_0, lambda w: permute(w, kv_heads))
        add(prefix + "attn_q.bias", (heads * head_dim,), Type.F32, lambda w: permute(w, heads))
        add(prefix + "attn_v.weight", (kv_heads * head_dim, hidden), Type.Q4_0)
        add(prefix + "attn_output.weight", (hidden, heads * head_dim), Type.BF16)
        add(prefix + "ffn_gate.weight", (inner, hidden), Type.Q4_1)
        add(prefix + "ffn_up.weight", (inner, hidden), Type.Q5_1)
        add(prefix + "ffn_down.weight", (hidden, inner), Type.Q5_0)

    def fill(writer):
        writer.add_block_count(2)
        writer.add_context_length(128)
        writer.add_embedding_length(hidden)
        writer.add_feed_forward_length(inner)
        writer.add_head_count(heads)
        writer.add_head_count_kv(kv_heads)
        writer.add_rope_dimension_count(head_dim)
        writer.add_rope_freq_base(500000.0)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_vocab_size(vocabulary)
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(["<|end|>", "<|im_start|>", "<|im_end|>", "a", "b", "c", "ab", "\u0120", "\u00e9", "d", "e", "f"])
        writer.add_token_types([3, 3, 3] + [1] * 9)
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_eot_token_id(0)
        writer.add_unk_token_id(0)
        writer.add_pad_token_id(2)
        writer.add_add_bos_token(False)
        writer.add_add_space_prefix(False)
        writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")
        for name, (raw, kind) in stored.items():
            writer.add_tensor(name, raw, raw_dtype=kind)

    write(out / "llama.gguf", "llama", fill)

    def fill_expected(writer):
        for name, values in expected.items():
            writer.add_tensor(name, np.ascontiguousarray(values))

    write(out / "llama.expected.gguf", "test", fill_expected)


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    write_types(out, rng)
    write_llama(out, rng)
    for path in sorted(out.glob("*.gguf")):
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
