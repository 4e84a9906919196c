"""Writes tests/data/encode: hostile FP32 values with their codes by the PyPI package ml_dtypes, and NVFP4 blocks by a numpy rendering of the rule
that NVIDIA's Model-Optimizer publishes (nvfp4_tensor.py), written from its description and independent of Sterling's encoder.

    pip install ml_dtypes numpy
    python tools/quant/make_encode_fixtures.py tests/data/encode

    values.f32                 the values, little endian (no NaN)
    e4m3.u8 e5m2.u8 e2m1.u8    their codes; beyond the range as ml_dtypes has it (NaN, infinity, 6)
    pairs.f32                  every E2M1 code times every E4M3 code (16 x 256, E2M1 slowest), exact products
    blocks.f32                 NVFP4 tensors of 64 elements: 4 blocks of 16 each
    blocks.scale2.f32          one global scale per tensor
    blocks.scale.u8            one E4M3 code per block
    blocks.codes.u8            packed E2M1 codes
"""

import pathlib
import sys

import ml_dtypes
import numpy as np

TYPES = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "e2m1": ml_dtypes.float4_e2m1fn}


def hostile_values() -> np.ndarray:
    """Every finite code, the middle between neighbours, one FP32 step around each, and what lies beyond."""
    points = [0.0, 1e-45, 1.1754944e-38, 3.4028235e38, np.inf, 464.0, 465.0, 480.0, 5.0, 6.0, 7.0, 61440.0, 65536.0]
    for kind in TYPES.values():
        codes = np.arange(16 if kind is TYPES["e2m1"] else 256, dtype=np.uint8).view(kind).astype(np.float64)
        grid = np.unique(np.abs(codes[np.isfinite(codes)]))
        points += list(grid) + list((grid[1:] + grid[:-1]) / 2)
    values = np.unique(np.array(points, dtype=np.float32))
    finite = values[np.isfinite(values)]
    down, up = np.nextafter(finite, np.float32(0)), np.nextafter(finite, np.float32(np.inf))
    values = np.unique(np.concatenate([values, down, up, np.random.default_rng(5).standard_normal(500).astype(np.float32) * 7]))
    values = np.abs(values[~np.isnan(values)])
    return np.concatenate([values, -values]).astype("<f4")


def e4m3(values: np.ndarray) -> np.ndarray:
    return values.astype(ml_dtypes.float8_e4m3fn)


def fp4_codes(values: np.ndarray) -> np.ndarray:
    """searchsorted over the grid's midpoints; those between an odd and the next even index belong to the upper one; the sign is that of x < 0."""
    bounds = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0], dtype=np.float32)
    magnitude = np.abs(values)
    index = np.searchsorted(bounds, magnitude, side="left")
    index = index + np.isin(magnitude, bounds[[1, 3, 5]])
    return (index + 8 * (values < 0)).astype(np.uint8)


def quantise(tensor: np.ndarray):
    f = np.float32
    blocks = tensor.reshape(-1, 16)
    scale2 = f(np.abs(tensor).max()) / f(2688.0)
    if scale2 == 0:
        scale2 = f(1)  # Model-Optimizer divides by zero here
    scale = np.abs(blocks).max(1) / (f(6) * scale2)
    scale[scale == 0] = 1
    codes8 = e4m3(np.clip(scale, f(2.0**-9), f(448)))
    step = codes8.astype(np.float32) * scale2
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        codes = fp4_codes(np.where(blocks == 0, f(0), blocks / step[:, None]))
    return scale2, codes8.view(np.uint8), (codes[:, 0::2] | (codes[:, 1::2] << 4)).astype(np.uint8)


def block_tensors() -> np.ndarray:
    rng = np.random.default_rng(16)
    out = [rng.standard_normal(64) * 10.0**e for e in range(-42, 38, 2)]
    out += [rng.standard_normal(64) * np.repeat(10.0 ** rng.uniform(-6, 2, 4), 16) for _ in range(60)]
    out += [rng.standard_normal(64).astype(ml_dtypes.bfloat16).astype(np.float64) * 0.02 for _ in range(60)]
    # Exactly on midpoints: the largest element fixes step = 1, the others sit on ties.
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0])
    for sign in (1, -1):
        block = np.concatenate([ties, -ties])
        out.append(np.concatenate([block * 448, block * sign, block * 0.5, block * sign * 2]))
    one = np.zeros(64)
    out.append(one)
    out.append(np.where(np.arange(64) == 5, 3.0, 0.0))  # three blocks of zeros
    out.append(np.where(np.arange(64) % 2 == 0, -0.0, 1.0))
    out.append(np.concatenate([np.full(16, 1e30), np.full(16, 1e-30), np.full(16, -1e-12), np.full(16, 2.0)]))
    return np.array(out).astype("<f4")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    values = hostile_values()
    values.tofile(out / "values.f32")
    with np.errstate(over="ignore", invalid="ignore"):
        for name, kind in TYPES.items():
            values.astype(kind).view(np.uint8).tofile(out / f"{name}.u8")
    fp4 = np.arange(16, dtype=np.uint8).view(TYPES["e2m1"]).astype(np.float32)
    fp8 = np.arange(256, dtype=np.uint8).view(TYPES["e4m3"]).astype(np.float32)
    (fp4[:, None] * fp8[None, :]).astype("<f4").tofile(out / "pairs.f32")
    tensors = block_tensors()
    done = [quantise(tensor) for tensor in tensors]
    tensors.tofile(out / "blocks.f32")
    np.array([d[0] for d in done], dtype="<f4").tofile(out / "blocks.scale2.f32")
    np.concatenate([d[1] for d in done]).tofile(out / "blocks.scale.u8")
    np.concatenate([d[2].ravel() for d in done]).tofile(out / "blocks.codes.u8")


if __name__ == "__main__":
    main()
