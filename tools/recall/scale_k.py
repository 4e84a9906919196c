#!/usr/bin/env python3
"""A copy of a Qwen3.5 checkpoint in which every K is F times larger and every Q F times smaller: the same model, a harder KV cache.

    python scale_k.py IN OUT --factor 64

q_norm and k_norm multiply by 1 + w, after which only a rotation follows; so w becomes (1 + w) F − 1 for K and (1 + w) / F − 1 for Q. F is a
power of two, and both are stored in FP32, since BF16 could not hold them: what is left is FP32's rounding of w.
"""

import argparse
import math
import pathlib
import shutil

import ml_dtypes  # noqa: F401  (teaches numpy bfloat16)
import numpy as np
import safetensors
import safetensors.numpy


def scaled(name, value, factor):
    if name.endswith("self_attn.k_norm.weight"):
        return ((1 + value.astype(np.float64)) * factor - 1).astype(np.float32)
    if name.endswith("self_attn.q_norm.weight"):
        return ((1 + value.astype(np.float64)) / factor - 1).astype(np.float32)
    return value


def scale_k(source, target, factor):
    """Raises ValueError with what is wrong of the arguments."""
    if factor <= 0 or math.frexp(factor)[0] != 0.5:
        raise ValueError(f"--factor is {factor}; accepted: a power of two")
    if target.exists():
        raise ValueError(f"{target} exists; accepted: a folder that is not there yet")
    file = source / "model.safetensors"
    with safetensors.safe_open(file, "np") as tensors:
        values = {name: scaled(name, tensors.get_tensor(name), factor) for name in tensors.keys()}
        metadata = tensors.metadata()
    if not any(name.endswith("self_attn.k_norm.weight") for name in values):
        raise ValueError(f"{file} has no tensor self_attn.k_norm.weight; accepted: a Qwen3.5 text checkpoint in one file")
    target.mkdir(parents=True)
    for extra in source.glob("*.json*"):
        shutil.copy(extra, target)
    safetensors.numpy.save_file(values, target / file.name, metadata=metadata)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    parser.add_argument("--factor", type=float, required=True)
    args = parser.parse_args()
    try:
        scale_k(args.source, args.target, args.factor)
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
