"""Writes tests/data/float_codes: the FP32 value of every code of four small float types, with the PyPI package ml_dtypes as oracle.

    pip install ml_dtypes numpy
    python tools/quant/make_float_codes.py tests/data/float_codes

Each file is little-endian FP32, one value per code from 0 up. NaN has whatever bits the cast gives.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np

TYPES = {
    "e4m3": (ml_dtypes.float8_e4m3fn, 256),
    "e5m2": (ml_dtypes.float8_e5m2, 256),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 256),
    "e2m1": (ml_dtypes.float4_e2m1fn, 16),
}


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, (kind, count) in TYPES.items():
        values = np.arange(count, dtype=np.uint8).view(kind).astype(np.float32)
        values.astype("<f4").tofile(out / f"{name}.f32")


if __name__ == "__main__":
    main()
