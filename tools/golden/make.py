#!/usr/bin/env python3
"""Makes the project's golden data: tiny random checkpoints and what Hugging Face transformers computes on them.

    make.py --out DIR [--size small|odd] [--seed N] [--family NAME]...     write
    make.py --check DIR                                                    reload, recompute, compare

DIR/<family>/checkpoint/         what an engine loads
DIR/<family>/golden.safetensors  what it must compute
DIR/manifest.json                versions, command, meaning of each entry, statistics, hashes

See README.md for the references and how to read the numbers.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

from families import FAMILIES, RESERVED, config_json, draw, generator, make_config, mtp_shapes, split_experts
from oracle import Oracle, cache_entries, read_json

PROMPTS = (1, 2, 17, 64, 65, 130)
PROBE = 17  # the prompt whose internals are stored
WHOLE, TAIL = 17, 4  # logits of every position up to this length, of the last few beyond
STEPS = 24
CANDIDATES = 384  # random prompts drawn per length, of which the one with the clearest continuation is kept
MIN_DISTINCT, MIN_MARGIN = 12, 0.05
MIN_ROUTER_MARGIN = 1e-3  # in router logits: float32 can't flip a choice of experts

MEANING = {
    "pN.tokens": "[n] I32 prompt; no special tokens are added",
    "pN.positions": f"[m] I32 positions whose logits are stored: all for n <= {WHOLE}, else the last {TAIL}",
    "pN.logits.f64 / .f32": "[m, vocab] logits there in float64, and from stock transformers in float32",
    "pN.greedy.tokens": f"[{STEPS}] I32 greedy continuation in float64, eos not honoured (and never met)",
    "pN.greedy.margin": f"[{STEPS}] F64 largest minus second largest logit at each step",
    "p17.hidden.f64 / .f32": "[layers + 2, 17, hidden] row 0 embeddings, row i the residual stream after layer i - 1, last row after the final norm",
    "p17.mixer.f64 / .f32": "[layers, 17, hidden] output of the attention or Gated DeltaNet block, before the residual addition",
    "p17.mlp.f64 / .f32": "[layers, 17, hidden] output of the MLP before the residual addition",
    "p17.router.experts": "[layers with experts, 17, k] I32 chosen experts, most probable first",
    "p17.router.weights.f64 / .f32": "[layers with experts, 17, k] what their outputs are multiplied by",
    "p17.k.f64 / .f32, p17.v.f64 / .f32": "[full-attention layers, kv_heads, 17, head_dim] K after norm and rope, V",
    "p17.gdn.state.f64 / .f32": "[Gated DeltaNet layers, v_heads, k_dim, v_dim] recurrent state after the prompt",
    "p17.gdn.conv.f64 / .f32": "[Gated DeltaNet layers, 2 * key width + value width, kernel] last `kernel` raw inputs of the convolution, oldest first (kernel - 1 are needed)",
    "rope.inv_freq.f64": "[rotary width / 2] F64 inverse frequencies after scaling",
}


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_checkpoint(name: str, size: str, seed: int, folder: Path) -> None:
    """transformers names the tensors and gives their shapes; the values are ours."""
    config = make_config(name, size)
    auto = transformers.AutoModelForImageTextToText if FAMILIES[name].wrapped else transformers.AutoModelForCausalLM
    model = auto.from_config(config)
    shapes = {key: tuple(tensor.shape) for key, tensor in model.state_dict().items()}
    if FAMILIES[name].tied:
        del shapes["lm_head.weight"]
    if FAMILIES[name].wrapped:
        shapes |= mtp_shapes(config)
    tensors = {key: draw(key, dims, name, seed).contiguous() for key, dims in sorted(shapes.items())}
    if FAMILIES[name].single_experts:
        tensors = split_experts(tensors)
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config.architectures, config.dtype = [type(model).__name__], torch.bfloat16
    write_json(folder / "config.json", config_json(name, config))
    text = config.get_text_config()
    ids = dict(bos_token_id=text.bos_token_id, eos_token_id=text.eos_token_id)
    write_json(folder / "generation_config.json", ids | dict(do_sample=False, transformers_version=transformers.__version__))


def choose_prompt(f32: Oracle, name: str, seed: int, vocab: int, n: int) -> np.ndarray:
    """A prompt whose greedy continuation is varied and never near a tie, so that a difference is a fault. Margins belong to the
    model; float32 is good enough to choose by, and record() refuses what float64 does not confirm."""
    prompts = generator(seed, name, "prompt", str(n)).integers(0, vocab - RESERVED, (CANDIDATES, n))
    tokens, margins, routers = f32.greedy(prompts, STEPS)
    best, chosen = 0.0, None
    for prompt, text, margin, router in zip(prompts, tokens, margins, routers):
        if router < MIN_ROUTER_MARGIN:
            continue
        if len(set(text.tolist())) >= MIN_DISTINCT and text.max() < vocab - RESERVED and margin.min() > best:
            best, chosen = margin.min(), prompt
    if best < MIN_MARGIN:
        raise SystemExit(f"{name}: no prompt of length {n} has a continuation with margins above {MIN_MARGIN}")
    return chosen.astype(np.int32)


def record(folder: Path, prompts: dict[int, np.ndarray]) -> tuple[dict[str, torch.Tensor], dict]:
    """-> entries of golden.safetensors, statistics per prompt."""
    f64, f32, bf16 = (Oracle(folder, dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16))
    entries, statistics, rows = {"rope.inv_freq.f64": f64.inverse_frequencies()}, {}, []
    for n, prompt in prompts.items():
        text, margins, router = (rows_[0] for rows_ in f64.greedy(prompt, STEPS))
        wide, narrow, half = f64.run(prompt), f32.run(prompt), bf16.run(prompt)
        # Cached and uncached decoding must agree, or one of them is not the reference it claims to be.
        whole = f64.run(np.concatenate([prompt, text[:-1]])).logits[0, -STEPS:]
        top = whole.topk(2).values
        if whole.argmax(-1).tolist() != text.tolist() or np.abs((top[:, 0] - top[:, 1]).numpy() - margins).max() > 1e-9:
            raise SystemExit(f"{folder}: p{n}: cached and uncached float64 decoding differ")
        kept = torch.arange(n) if n <= WHOLE else torch.arange(n - TAIL, n)
        p = f"p{n}."
        entries |= {
            p + "tokens": torch.from_numpy(prompt),
            p + "positions": kept.to(torch.int32),
            p + "logits.f64": wide.logits[0, kept],
            p + "logits.f32": narrow.logits[0, kept],
            p + "greedy.tokens": torch.from_numpy(text),
            p + "greedy.margin": torch.from_numpy(margins),
        }
        if n == PROBE:
            for suffix, run in (("f64", wide), ("f32", narrow)):
                for what in ("hidden", "mixer", "mlp"):
                    entries[f"{p}{what}.{suffix}"] = torch.stack(getattr(run, what))
                entries |= {f"{p}{what}.{suffix}": tensor for what, tensor in cache_entries(run).items()}
                if run.router:
                    entries[f"{p}router.weights.{suffix}"] = torch.stack([weights for _, weights, _ in run.router])
            if wide.router:
                entries[p + "router.experts"] = torch.stack([ids for _, _, ids in wide.router]).to(torch.int32)
        statistics[f"p{n}"] = {
            "max_abs_f32_minus_f64": gap(narrow.logits, wide.logits),
            "max_abs_bf16_minus_f64": gap(half.logits, wide.logits),
            "max_abs_logit": float(wide.logits.abs().max()),
            "min_greedy_margin": float(margins.min()),
            "distinct_greedy_tokens": len(set(text.tolist())),
        } | ({"min_router_margin": float(router)} if np.isfinite(router) else {}) | {
            "hidden_rms": [round(float(h.square().mean().sqrt()), 3) for h in wide.hidden],
        }
        rows.append(wide.logits[0])
    log_p = torch.cat(rows).log_softmax(-1)
    statistics["mean_entropy_nats"] = round(float(-(log_p.exp() * log_p).sum(-1).mean()), 3)
    return {key: entries[key].contiguous() for key in sorted(entries)}, statistics


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def file_table(folder: Path) -> dict:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): {"bytes": path.stat().st_size, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            for path in files}


def write_family(name: str, out: Path, size: str, seed: int) -> dict:
    folder = out / name
    shutil.rmtree(folder, ignore_errors=True)
    checkpoint = folder / "checkpoint"
    write_checkpoint(name, size, seed, checkpoint)
    vocab = FAMILIES[name].sizes[size]["vocab_size"]
    f32 = Oracle(checkpoint, torch.float32)
    prompts = {n: choose_prompt(f32, name, seed, vocab, n) for n in PROMPTS}
    entries, statistics = record(checkpoint, prompts)
    if not 0.5 < statistics["mean_entropy_nats"] < 0.95 * np.log(vocab):
        raise SystemExit(f"{name}: degenerate model, mean entropy {statistics['mean_entropy_nats']} nats")
    save_file(entries, folder / "golden.safetensors")
    return {"covers": FAMILIES[name].covers, "statistics": statistics, "files": file_table(folder)}


def write(out: Path, size: str, seed: int, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "manifest.json"
    packages = ("torch", "transformers", "safetensors", "numpy", "ml_dtypes")
    manifest = {
        "what": "Golden data; made by tools/golden/make.py with Hugging Face transformers as the oracle.",
        "command": f"make.py --out DIR --size {size} --seed {seed}",
        "size": size,
        "seed": seed,
        "versions": {"python": platform.python_version()} | {package: metadata.version(package) for package in packages},
        "meaning": MEANING,
        "models": read_json(path)["models"] if path.exists() and len(names) < len(FAMILIES) else {},
    }
    for name in names:
        manifest["models"][name] = write_family(name, out, size, seed)
        print(name, json.dumps(manifest["models"][name]["statistics"]), file=sys.stderr)
    write_json(path, manifest)


# ---- checking --------------------------------------------------------------------------------------------------------


def check_family(folder: Path, listed: dict) -> list[str]:
    """Recomputes every entry from the files. float64 must repeat to 1e-9 of the entry's magnitude, float32 must stay within 4 times
    its recorded distance from float64 (another CPU sums in another order), integers must be equal."""
    faults = [] if file_table(folder) == listed["files"] else ["files differ from the manifest's hashes"]
    stored = load_file(folder / "golden.safetensors")
    prompts = {n: stored[f"p{n}.tokens"].numpy() for n in PROMPTS}
    again, _ = record(folder / "checkpoint", prompts)
    if again.keys() != stored.keys():
        return faults + [f"entries differ: {sorted(again.keys() ^ stored.keys())}"]
    for key, old in stored.items():
        new = again[key]
        if old.shape != new.shape or old.dtype != new.dtype:
            faults.append(f"{key}: was {old.dtype} {list(old.shape)}, is {new.dtype} {list(new.shape)}")
        elif not old.is_floating_point():
            if not torch.equal(old, new):
                faults.append(f"{key} differs")
        else:
            allowed = 1e-9 * float(old.abs().max())
            if key.endswith(".f32"):
                wide = stored[key[:-3] + "f64"]
                allowed, new = max(4 * gap(old, wide), 1e-6 * float(wide.abs().max())), again[key]
                old = wide
            if gap(old, new) > allowed:
                faults.append(f"{key}: off by {gap(old, new):.3g}, allowed {allowed:.3g}")
    return faults


def check(folder: Path) -> int:
    manifest, bad = read_json(folder / "manifest.json"), 0
    for name, listed in manifest["models"].items():
        faults = check_family(folder / name, listed)
        print(f"{name}: {'ok' if not faults else '; '.join(faults)}")
        bad += bool(faults)
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--size", default="small", choices=("small", "odd"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--family", action="append", choices=sorted(FAMILIES))
    arguments = parser.parse_args()
    if (arguments.out is None) == (arguments.check is None):
        parser.error("give either --out or --check")
    if arguments.check:
        return check(arguments.check)
    write(arguments.out, arguments.size, arguments.seed, arguments.family or list(FAMILIES))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
