#!/usr/bin/env python3
"""A copy of a Qwen3.5 checkpoint in which every K is F times larger and every Q F times smaller: the same model, a harder KV cache.

    python scale_k.py IN OUT --factor 64

q_norm and k_norm multiply by 1 + w, after which only a rotation follows; so w becomes (1 + w) F − 1 for K and (1 + w) / F − 1 for Q. F is a
power of two, and both are stored in FP32, since BF16 could not hold them: what is left is FP32's rounding of w.
"""

import argparse
import pathlib
import shutil

import safetensors
import safetensors.torch
import torch


def scaled(name, value, factor):
    if name.endswith("self_attn.k_norm.weight"):
        return ((1 + value.double()) * factor - 1).float()
    if name.endswith("self_attn.q_norm.weight"):
        return ((1 + value.double()) / factor - 1).float()
    return value


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--factor", type=float, required=True)
    args = parser.parse_args()
    if args.factor <= 0 or torch.frexp(torch.tensor(args.factor)).mantissa != 0.5:
        parser.error(f"--factor is {args.factor}; accepted: a power of two")
    if args.target.exists():
        parser.error(f"{args.target} exists; accepted: a folder that is not there yet")
    file = args.source / "model.safetensors"
    with safetensors.safe_open(file, "pt") as tensors:
        values = {name: scaled(name, tensors.get_tensor(name), args.factor) for name in tensors.keys()}
        metadata = tensors.metadata()
    if not any(name.endswith("self_attn.k_norm.weight") for name in values):
        parser.error(f"{file} has no tensor self_attn.k_norm.weight; accepted: a Qwen3.5 text checkpoint in one file")
    args.target.mkdir(parents=True)
    for extra in args.source.glob("*.json*"):
        shutil.copy(extra, args.target)
    safetensors.torch.save_file(values, args.target / file.name, metadata=metadata)


if __name__ == "__main__":
    main()
