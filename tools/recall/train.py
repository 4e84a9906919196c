#!/usr/bin/env python3
"""Trains the recall model from random weights on a CPU, and writes it as a Hugging Face checkpoint. See README.md.

    python train.py --out DIR [--seed 1] [--threads 2] [--resume DIR/state.pt]
"""

import argparse
import json
import os
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F

import model as hybrid
import task

# Length, sequences per step, recall (running mean over steps) at which the next stage begins.
STAGES = [(96, 32, 0.85), (256, 12, 0.93), (768, 4, 0.96), (2048, 2, 0.97)]
FINAL_LENGTHS = [(768, 4), (2048, 2), (4096, 1)]


def run_step(net, optimiser, tokens, mask, clip):
    x = torch.from_numpy(tokens)
    answers = torch.from_numpy(mask)
    hidden = net.model(input_ids=x, use_cache=False).last_hidden_state[answers]
    wanted = x.roll(-1, dims=1)[answers]
    logits = net.lm_head(hidden)
    loss = F.cross_entropy(logits, wanted)
    optimiser.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
    optimiser.step()
    return loss.item(), (logits.argmax(-1) == wanted).float().mean().item()


def save_checkpoint(net, folder):
    """As transformers saves it, but with A_log and the Gated DeltaNet norms in FP32, which published checkpoints keep so."""
    import safetensors.torch

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, value in net.state_dict().items():
        wide = name.endswith(("A_log", "linear_attn.norm.weight"))
        tensors[name] = value.detach().to(torch.float32 if wide else torch.bfloat16).contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads(net.config.to_json_string(use_diff=False))
    keep = net.config.to_diff_dict() | {"dtype": "bfloat16", "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text"}
    for name in hybrid.config_fields():
        keep[name] = config[name]
    (folder / "config.json").write_text(json.dumps(keep, indent=1, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--final-steps", type=int, default=420, help="steps of mixed lengths while the rate falls to zero")
    parser.add_argument("--resume", type=pathlib.Path)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    hybrid.use_fast_delta_rule()
    net = hybrid.build(args.seed)
    decayed = [p for p in net.parameters() if p.dim() == 2]
    others = [p for p in net.parameters() if p.dim() != 2]
    optimiser = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}], lr=args.rate, betas=(0.9, 0.98)
    )
    rng = np.random.default_rng(args.seed)
    stage, step, final, running, seconds = 0, 0, 0, 0.0, 0.0
    if args.resume:
        state = torch.load(args.resume, weights_only=False)
        net.load_state_dict(state["net"])
        optimiser.load_state_dict(state["optimiser"])
        rng.bit_generator.state = state["rng"]
        stage, step, final, running, seconds = (state[k] for k in ("stage", "step", "final", "running", "seconds"))

    args.out.mkdir(parents=True, exist_ok=True)
    log = open(args.out / "log.jsonl", "a", buffering=1)
    while final < args.final_steps:
        began = time.monotonic()
        finishing = stage == len(STAGES)
        length, batch = FINAL_LENGTHS[rng.integers(len(FINAL_LENGTHS))] if finishing else STAGES[stage][:2]
        rate = args.rate * min(1.0, (step + 1) / 30) * ((1 - final / args.final_steps) if finishing else 1.0)
        for group in optimiser.param_groups:
            group["lr"] = rate
        loss, recall = run_step(net, optimiser, *task.training_batch(rng, length, batch), clip=1.0)
        step += 1
        final += finishing
        running = 0.95 * running + 0.05 * recall
        seconds += time.monotonic() - began
        if step % 10 == 0:
            row = {"step": step, "length": length, "loss": round(loss, 4), "recall": round(running, 4), "seconds": round(seconds)}
            log.write(json.dumps(row) + "\n")
        if not finishing and running >= STAGES[stage][2]:
            stage += 1
            running = 0.0
        if step % 50 == 0 or final == args.final_steps:
            state = {"net": net.state_dict(), "optimiser": optimiser.state_dict(), "rng": rng.bit_generator.state}
            state |= {"stage": stage, "step": step, "final": final, "running": running, "seconds": seconds}
            torch.save(state, args.out / "state.tmp")
            os.replace(args.out / "state.tmp", args.out / "state.pt")
    save_checkpoint(net, args.out / "checkpoint")


if __name__ == "__main__":
    main()
