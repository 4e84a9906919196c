#!/usr/bin/env python3
"""How far the declared BF16 rounding points alone move a model, in units of the FP32 yardstick.

    rounding.py DIR...      DIR: a golden directory (DIR/checkpoint, DIR/golden.safetensors)

Runs the float64 reference with exactly the roundings of the engine's bf16 mode put in: the input of every matrix product, and q, k, v
and the softmax numerators of attention. For every stored entry it prints error / (2^16 * yardstick), the number that src/lab/golden_bounds.h
bounds; yardstick = max(distance of HF float32 from float64, floor) as there. This is where that file's kBf16Share comes from.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from unittest import mock

import torch
from safetensors.torch import load_file

from oracle import Oracle, cache_entries

FLOOR_UNITS = 4  # src/lab/golden_bounds.h: kFloorUnits
UNIT = 2.0**-24


def to_bf16(x: torch.Tensor) -> torch.Tensor:
    """Nearest BF16 value, ties to even, without leaving float64."""
    fraction, exponent = torch.frexp(x)
    return torch.ldexp(torch.round(torch.ldexp(fraction, torch.tensor(8))), exponent - 8)


def attention(module, query, key, value, attention_mask, scaling, **_):
    repeat = query.shape[1] // key.shape[1]
    q, k, v = (to_bf16(t) for t in (query, key, value))
    k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
    scores = q @ k.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    p = to_bf16((scores - scores.amax(-1, keepdim=True)).exp())
    return (p @ v / p.sum(-1, keepdim=True)).transpose(1, 2).contiguous(), p


@contextlib.contextmanager
def rounded(oracle: Oracle):
    modelling = sys.modules[type(oracle.decoder).__module__]
    linear = [m for m in oracle.model.modules() if isinstance(m, torch.nn.Linear)]
    hooks = [m.register_forward_pre_hook(lambda _module, inputs: (to_bf16(inputs[0]),)) for m in linear]
    try:
        with mock.patch.object(modelling, "eager_attention_forward", attention):
            yield
    finally:
        for hook in hooks:
            hook.remove()


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b).abs().max())


def ratio(got: torch.Tensor, wide: torch.Tensor, hf_distance: float) -> float:
    return distance(got, wide) / (2.0**16 * max(hf_distance, FLOOR_UNITS * UNIT * float(wide.abs().max())))


def layer_ratios(stored, run, kinds: list[str]) -> dict[str, float]:
    """hidden, and per layer what is stored of it, by the rules of golden_bounds.h for entries with and without float32 values."""
    out, wide, narrow = {}, stored["p17.hidden.f64"], stored["p17.hidden.f32"]
    d = [distance(narrow[i], wide[i]) for i in range(len(wide))]
    noise = [d[i] / float(wide[i].abs().max()) for i in range(len(wide))]
    for row in range(1, len(wide)):  # row 0, the embeddings, is exact
        out[f"hidden[{row}]"] = ratio(run.hidden[row], wide[row], d[row])
    seen = {"mixer": run.mixer, "mlp": run.mlp} | {k: to_bf16(v) if k in "kv" else v for k, v in cache_entries(run).items()}
    full = [i for i, kind in enumerate(kinds) if kind == "full_attention"]
    linear = [i for i, kind in enumerate(kinds) if kind != "full_attention"]
    for what, parts in seen.items():
        layers = full if what in "kv" else linear if what.startswith("gdn") else range(len(kinds))
        for index, layer in enumerate(layers):
            truth = stored[f"p17.{what}.f64"][index]
            if f"p17.{what}.f32" in stored:
                hf = distance(stored[f"p17.{what}.f32"][index], truth)
            else:
                hf = max(noise[layer], noise[layer + 1]) * float(truth.abs().max())
                if what in ("mixer", "mlp"):
                    hf = max(hf, d[layer], d[layer + 1])
            out[f"{what}[{layer}]"] = ratio(parts[index], truth, hf)
    return out


def margin_ratio(oracle: Oracle, stored, n: int, yardstick: float) -> float:
    """How much of the distance between the two best logits the roundings eat up along the reference's continuation, at worst."""
    text, margins = stored[f"p{n}.greedy.tokens"], stored[f"p{n}.greedy.margin"]
    rows = oracle.run(torch.cat([stored[f"p{n}.tokens"], text[:-1]]).numpy()).logits[0, n - 1 :]
    best = rows.gather(1, text.long()[:, None])[:, 0]
    others = rows.scatter(1, text.long()[:, None], -torch.inf).amax(1)
    return float((margins - (best - others)).amax()) / (2.0**16 * yardstick)


def ratios(folder: Path) -> dict[str, float]:
    stored = load_file(folder / "golden.safetensors")
    oracle, out = Oracle(folder / "checkpoint", torch.float64), {}
    config = oracle.decoder.config
    kinds = getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers
    for n in (1, 2, 17, 64, 65, 130):
        with rounded(oracle):
            run = oracle.run(stored[f"p{n}.tokens"].numpy())
        wide = stored[f"p{n}.logits.f64"]
        got = run.logits[0, stored[f"p{n}.positions"].long()]
        hf = distance(stored[f"p{n}.logits.f32"], wide)
        out[f"p{n}.logits"] = ratio(got, wide, hf)
        with rounded(oracle):
            out[f"p{n}.margin"] = margin_ratio(oracle, stored, n, max(hf, FLOOR_UNITS * UNIT * float(wide.abs().max())))
        if n == 17:
            out |= layer_ratios(stored, run, kinds)
    return out


def main() -> int:
    every = []
    for folder in map(Path, sys.argv[1:]):
        found = ratios(folder)
        every += found.values()
        print(f"{folder}: largest {max(found.values()):.2f} ({max(found, key=found.get)})")
        print("   " + "  ".join(f"{name} {value:.2f}" for name, value in found.items()), flush=True)
    every.sort()
    at = [every[min(len(every) - 1, int(len(every) * share))] for share in (0.5, 0.95, 0.99, 1.0)]
    print(f"{len(every)} entries: median {at[0]:.2f}, 95 % {at[1]:.2f}, 99 % {at[2]:.2f}, largest {at[3]:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
