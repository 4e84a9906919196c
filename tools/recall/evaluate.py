#!/usr/bin/env python3
"""Recall of a checkpoint in transformers, in BF16 and in FP32, by the distance between a question and the value it asks for.

    python evaluate.py CHECKPOINT [--length 4096] [--sequences 8] [--questions 256] [--seed 1000] [--json FILE] [--same-as OTHER]

--same-as also compares the FP32 logits with those of another checkpoint, such as a copy made by scale_k.py.
"""

import argparse
import json
import pathlib

import numpy as np
import torch
from transformers import Qwen3_5ForCausalLM

import task

BINS = 8


@torch.no_grad()
def measure(model, sequences, length):
    """Recall over all questions and for each eighth of the text's length."""
    right, total = np.zeros(BINS, dtype=np.int64), np.zeros(BINS, dtype=np.int64)
    for tokens, answer, distance in sequences:
        hidden = model.model(input_ids=torch.from_numpy(tokens)[None], use_cache=False).last_hidden_state[0, answer]
        hit = model.lm_head(hidden).argmax(-1).numpy() == tokens[answer + 1]
        part = np.minimum(distance * BINS // length, BINS - 1)
        np.add.at(right, part, hit)
        np.add.at(total, part, 1)
    rows = [
        {"from": i * length // BINS, "to": (i + 1) * length // BINS, "questions": int(total[i]), "right": int(right[i])} for i in range(BINS)
    ]
    return {"recall": float(right.sum() / total.sum()), "questions": int(total.sum()), "by_distance": rows}


@torch.no_grad()
def largest_difference(model, other, tokens):
    """Between the FP32 logits of two models on one text, with the largest logit for its measure."""
    x = torch.from_numpy(tokens)[None]
    mine, theirs = (m(input_ids=x, use_cache=False).logits for m in (model, other))
    return (mine - theirs).abs().max().item(), mine.abs().max().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--questions", type=int, default=256)
    parser.add_argument("--seed", type=int, default=1000, help="not the training's seed")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--same-as", type=pathlib.Path)
    args = parser.parse_args()

    rng = np.random.default_rng(args.seed)
    sequences = [task.test_sequence(rng, args.length, args.questions) for _ in range(args.sequences)]
    result = {"length": args.length, "sequences": args.sequences, "seed": args.seed}
    for name, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        model = Qwen3_5ForCausalLM.from_pretrained(args.checkpoint, dtype=dtype).eval()
        result[name] = measure(model, sequences, args.length)
        print(f"{name}: {result[name]['recall']:.4%} of {result[name]['questions']} questions")
        for row in result[name]["by_distance"]:
            print(f"  distance {row['from']:5} to {row['to']:5}: {row['right']:5} of {row['questions']:5}")
    if args.same_as:
        other = Qwen3_5ForCausalLM.from_pretrained(args.same_as, dtype=torch.float32).eval()
        difference, largest = largest_difference(model, other, sequences[0][0])
        result["same_as"] = {"largest_difference": difference, "largest_logit": largest}
        print(f"fp32 logits: largest difference {difference:.3g}, largest logit {largest:.3g}")
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
