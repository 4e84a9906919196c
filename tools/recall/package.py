#!/usr/bin/env python3
"""Makes a trained checkpoint a test model: a tokenizer with a text for every id, and test prompts with their answers.

    python package.py CHECKPOINT tests/models/recall
"""

import argparse
import json
import pathlib
import shutil

import numpy as np

import task

LENGTH, PROMPTS, QUESTIONS, SEED = 4096, 4, 256, 2001


def tokenizer():
    """Whole words only, one for each id, written <word><word>… without white space."""
    vocabulary = {task.token_name(i): i for i in range(task.VOCABULARY)}
    special = [
        {"id": i, "content": task.token_name(i), "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i in (task.PAD, task.BOS, task.EOS)
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "<[^<>]*>"}, "behavior": "Isolated", "invert": False},
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": task.token_name(task.PAD)},
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("target", type=pathlib.Path)
    args = parser.parse_args()
    args.target.mkdir(parents=True, exist_ok=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(args.checkpoint / name, args.target)
    ids = {"bos_token_id": task.BOS, "eos_token_id": task.EOS, "pad_token_id": task.PAD}
    words = {"bos_token": task.token_name(task.BOS), "eos_token": task.token_name(task.EOS), "pad_token": task.token_name(task.PAD)}
    words |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 16384, "clean_up_tokenization_spaces": False}
    for name, content in (("generation_config", ids), ("tokenizer_config", words), ("tokenizer", tokenizer())):
        (args.target / f"{name}.json").write_text(json.dumps(content) + "\n")
    rng = np.random.default_rng(SEED)
    with open(args.target / "prompts.jsonl", "w") as out:
        for _ in range(PROMPTS):
            tokens, answer, distance = task.test_sequence(rng, LENGTH, QUESTIONS)
            row = {"ids": tokens, "positions": answer, "answers": tokens[answer + 1], "distances": distance}
            out.write(json.dumps({name: values.tolist() for name, values in row.items()}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
