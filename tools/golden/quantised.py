#!/usr/bin/env python3
"""Makes golden sets of quantised checkpoints: the weights of a family in each published layout, and what transformers computes on their
exact values.

    quantised.py --out DIR [--seed N] [--set NAME]...

The oracle never sees codes: it runs on the decoded weights (a float64 table of codes times scales), so encoder and layout here are checked by
nothing but this file's reading of the formats. Two independent readers look at the result besides: the sets that others made, and
compressed-tensors' own decompression (tests of `sterling quantize`). Encoders are plain round to nearest even from ml_dtypes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file, save_file

import make
from make import file_table, gap, record, write_checkpoint, write_json  # noqa: F401  (gap: used by record's callers)
from oracle import Oracle, read_json

PROMPTS = (1, 17, 65)
E4M3_MAX, E2M1_MAX = 448.0, 6.0


def e4m3(values: np.ndarray) -> np.ndarray:
    return np.clip(values, -E4M3_MAX, E4M3_MAX).astype(ml_dtypes.float8_e4m3fn)


def as_torch(array: np.ndarray) -> torch.Tensor:
    """ml_dtypes arrays by their bits."""
    if array.dtype == ml_dtypes.float8_e4m3fn:
        return torch.from_numpy(array.view(np.uint8).copy()).view(torch.float8_e4m3fn)
    return torch.from_numpy(np.ascontiguousarray(array))


def pack_nibbles(codes: np.ndarray) -> np.ndarray:
    """[rows, cols] four-bit codes -> [rows, cols / 2] bytes, even element low."""
    return (codes[:, 0::2] | (codes[:, 1::2] << 4)).astype(np.uint8)


def e2m1(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """-> codes, their values"""
    rounded = np.clip(values, -E2M1_MAX, E2M1_MAX).astype(ml_dtypes.float4_e2m1fn)
    return rounded.view(np.uint8) & 15, rounded.astype(np.float64)


# Each encoder: weight in float64 -> ({tensor suffix: array}, exact value in float64).


def fp8_tensor(w):
    scale = np.float32(np.abs(w).max() / E4M3_MAX)
    codes = e4m3(w / np.float64(scale))
    parts = {"weight": codes, "weight_scale": scale, "input_scale": np.float32(0.02)}
    return parts, codes.astype(np.float64) * np.float64(scale)


def fp8_channel(w):
    scale = (np.abs(w).max(1, keepdims=True) / E4M3_MAX).astype(np.float32)
    codes = e4m3(w / scale.astype(np.float64))
    return {"weight": codes, "weight_scale": scale}, codes.astype(np.float64) * scale


def fp8_block(w, block=128):
    rows, cols = w.shape
    padded = np.zeros((-(-rows // block) * block, -(-cols // block) * block))
    padded[:rows, :cols] = w
    tiles = padded.reshape(padded.shape[0] // block, block, -1, block)
    scale = (np.abs(tiles).max((1, 3)) / E4M3_MAX).astype(ml_dtypes.bfloat16)
    whole = np.repeat(np.repeat(scale.astype(np.float64), block, 0), block, 1)[:rows, :cols]
    codes = e4m3(w / whole)
    return {"weight": codes, "weight_scale_inv": torch.from_numpy(scale.astype(np.float32)).bfloat16()}, codes.astype(np.float64) * whole


def nvfp4(w, divide, activations):
    rows, cols = w.shape
    total = np.float32(np.abs(w).max() / (E2M1_MAX * E4M3_MAX))
    groups = w.reshape(rows, cols // 16, 16)
    wanted = np.abs(groups).max(2) / (E2M1_MAX * np.float64(total))
    scale = e4m3(np.clip(wanted, 2.0**-9, E4M3_MAX))
    codes, values = e2m1(groups / (scale.astype(np.float64) * np.float64(total))[..., None])
    packed = pack_nibbles(codes.reshape(rows, cols))
    if divide:
        inverse = np.float32(1.0 / total)
        parts = {"weight_packed": packed, "weight_scale": scale, "weight_global_scale": np.array([inverse], np.float32)}
        if activations:
            parts["input_global_scale"] = np.array([100.0], np.float32)
        factor = 1.0 / np.float64(inverse)
    else:
        parts = {"weight": packed, "weight_scale": scale, "weight_scale_2": total}
        if activations:
            parts["input_scale"] = np.float32(0.01)
        factor = np.float64(total)
    return parts, (values * scale.astype(np.float64)[..., None]).reshape(rows, cols) * factor


def microscale(w, bits):
    rows, cols = w.shape
    groups = w.reshape(rows, cols // 32, 32)
    largest = E2M1_MAX if bits == 4 else E4M3_MAX
    exponent = np.ceil(np.log2(np.maximum(np.abs(groups).max(2), 1e-30) / largest)).astype(np.int64)
    factor = np.exp2(exponent.astype(np.float64))[..., None]
    scale = (exponent + 127).astype(np.uint8)
    if bits == 4:
        codes, values = e2m1(groups / factor)
        return {"weight_packed": pack_nibbles(codes.reshape(rows, cols)), "weight_scale": scale}, (values * factor).reshape(rows, cols)
    codes = e4m3(groups / factor)
    return {"weight": codes.reshape(rows, cols), "weight_scale": scale}, (codes.astype(np.float64) * factor).reshape(rows, cols)


def float_group(bits, group=None, dynamic=False):
    return {"num_bits": bits, "type": "float", "dynamic": dynamic} | ({"group_size": group} if group else {})


def modelopt(algo, ignore, **more):
    return {"producer": {"name": "modelopt", "version": "0.45.0"}, "quantization": {"quant_algo": algo, "kv_cache_quant_algo": None,
            "exclude_modules": ignore} | more}


def compressed(layout, ignore, weights, inputs):
    return {"quant_method": "compressed-tensors", "format": layout, "ignore": ignore, "quantization_status": "compressed",
            "kv_cache_scheme": None,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights, "input_activations": inputs}}}


EVERY_LINEAR = lambda name: "_proj." in name and "in_proj_a" not in name and "in_proj_b" not in name  # noqa: E731
MLP = lambda name: ".mlp." in name  # noqa: E731

# name -> family, what to quantise how ([(which tensors, encoder)]), quantization_config of config.json, hf_quant_config.json
SETS = {
    "llama-fp8-tensor": ("llama", [(EVERY_LINEAR, fp8_tensor)],
                         {"quant_method": "modelopt", "quant_algo": "FP8", "ignore": ["lm_head"]}, modelopt("FP8", ["lm_head"])),
    "llama-fp8-channel": ("llama", [(EVERY_LINEAR, fp8_channel)],
                          compressed("float-quantized", ["lm_head"], float_group(8) | {"strategy": "channel"},
                                     float_group(8, dynamic=True) | {"strategy": "token"}), None),
    "llama-fp8-block": ("llama", [(EVERY_LINEAR, fp8_block)],
                        {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                         "modules_to_not_convert": ["lm_head"]}, None),
    "llama-nvfp4-ct": ("llama", [(EVERY_LINEAR, lambda w: nvfp4(w, True, True))],
                       compressed("nvfp4-pack-quantized", ["lm_head"], float_group(4, 16) | {"strategy": "tensor_group"},
                                  float_group(4, 16) | {"strategy": "tensor_group"}), None),
    "llama-mxfp4": ("llama", [(EVERY_LINEAR, lambda w: microscale(w, 4))],
                    compressed("mxfp4-pack-quantized", ["lm_head"], float_group(4, 32) | {"strategy": "group"}, None), None),
    "llama-mxfp8": ("llama", [(EVERY_LINEAR, lambda w: microscale(w, 8))],
                    {"quant_method": "modelopt", "quant_algo": "MXFP8", "ignore": ["lm_head"]}, modelopt("MXFP8", ["lm_head"])),
    "qwen3_5-nvfp4": ("qwen3_5", [(lambda n: EVERY_LINEAR(n) and not n.startswith("mtp."), lambda w: nvfp4(w, False, True))],
                      {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "*in_proj_a", "*in_proj_b", "model.visual*", "mtp*"]},
                      modelopt("NVFP4", ["lm_head", "*in_proj_a", "*in_proj_b", "model.visual*", "mtp*"], group_size=16)),
    "qwen3_5-mixed": ("qwen3_5", [(lambda n: MLP(n) and not n.startswith("mtp.") or n == "lm_head.weight", lambda w: nvfp4(w, False, False)),
                                  (lambda n: EVERY_LINEAR(n) and not n.startswith("mtp."), fp8_tensor)],
                      {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "mixed"),
}


def quantise(tensors: dict, rules) -> tuple[dict, dict, dict]:
    """-> stored tensors, decoded tensors in float64, {module: encoder}"""
    stored, decoded, layers = {}, {}, {}
    for name, tensor in tensors.items():
        encoder = next((encode for which, encode in rules if which(name) and tensor.dim() == 2), None)
        if encoder is None or ".visual." in name:
            stored[name], decoded[name] = tensor, tensor.double() if tensor.is_floating_point() else tensor
            continue
        parts, exact = encoder(tensor.double().numpy())
        module = name.removesuffix(".weight")
        layers[module] = encoder
        for suffix, array in parts.items():
            stored[f"{module}.{suffix}"] = array if isinstance(array, torch.Tensor) else as_torch(np.asarray(array))
        decoded[name] = torch.from_numpy(exact)
    return stored, decoded, layers


def write_set(name: str, out: Path, seed: int) -> dict:
    family, rules, section, hf_quant = SETS[name]
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint = folder / "checkpoint"
    write_checkpoint(family, "groups", seed, checkpoint)
    tensors = load_file(checkpoint / "model.safetensors")
    stored, decoded, layers = quantise(tensors, rules)
    with tempfile.TemporaryDirectory() as plain:
        shutil.copy(checkpoint / "config.json", plain)
        save_file(decoded, Path(plain) / "model.safetensors", {"format": "pt"})
        vocab = make.FAMILIES[family].sizes["groups"]["vocab_size"]
        f32 = Oracle(Path(plain), torch.float32)
        prompts = {n: make.choose_prompt(f32, family, seed, vocab, n) for n in PROMPTS}
        entries, statistics = record(Path(plain), prompts)
    save_file(stored, checkpoint / "model.safetensors", {"format": "pt"})
    config = read_json(checkpoint / "config.json")
    if hf_quant == "mixed":
        listed = {module: {"quant_algo": "FP8"} if encoder is fp8_tensor else {"quant_algo": "W4A16_NVFP4", "group_size": 16}
                  for module, encoder in layers.items()}
        section = section | {"quantized_layers": listed}
        hf_quant = modelopt("MIXED_PRECISION", ["mtp*", "model.visual*"], quantized_layers=listed)
    config["quantization_config"] = section
    write_json(checkpoint / "config.json", config)
    if hf_quant:
        write_json(checkpoint / "hf_quant_config.json", hf_quant)
    save_file(entries, folder / "golden.safetensors")
    return {"family": family, "statistics": statistics, "files": file_table(folder)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--set", action="append", choices=sorted(SETS))
    arguments = parser.parse_args()
    path = arguments.out / "quantised.json"
    listing = read_json(path) if path.exists() and arguments.set else {}
    for name in arguments.set or SETS:
        listing[name] = write_set(name, arguments.out, arguments.seed)
        print(name, json.dumps(listing[name]["statistics"]))
    write_json(path, listing)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
