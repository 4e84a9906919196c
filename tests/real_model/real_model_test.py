"""The real server with the real chat model answers as transformers does on the same weights.

usage: real_model_test.py STERLING MODEL.gguf          exit 77: the model is not there

Reference: tests/golden/smollm2_greedy.json (tools/golden/smollm2.py): transformers in float32 on the exactly dequantised weights, and
llama.cpp, with the margin between the two best logits at every step. A greedy step is decided by arithmetic, not by luck, when
that margin exceeds twice the largest error a logit can have; up to the first undecided step the ids must be equal.

The largest error is measured here and not assumed: every prompt's first answer token is also scored with --compute fp32 on the same
weights, and the BF16 server's logprobs may differ from those by ERROR_BOUND at most. (FP32 itself is within 1e-3 of transformers.)
"""

import json
import os
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "tests" / "golden" / "smollm2_greedy.json"
FP32_MARGIN = 2e-3  # twice what two correct FP32 engines differ by on this model
ERROR_BOUND = 0.25  # logits of the BF16 engine; 2 * ERROR_BOUND decides


class Server:
    def __init__(self, binary, model, *flags):
        self.process = subprocess.Popen([binary, "serve", model, "--port", "0", *flags], stderr=subprocess.PIPE, text=True)
        self.log = []
        self.url = None
        for line in self.process.stderr:
            self.log.append(line)
            if " ready address=" in line:
                self.url = line.split("ready address=")[1].split()[0]
                break
        if self.url is None:
            raise SystemExit("the server did not start:\n" + "".join(self.log))
        threading.Thread(target=lambda: [self.log.append(line) for line in self.process.stderr], daemon=True).start()

    def post(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def complete(server, ids, count):
    body = {"prompt": ids, "max_tokens": count, "temperature": 0, "return_token_ids": True, "logprobs": 1}
    choice = server.post("/v1/completions", body)["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def check_greedy(name, ours, reference, margins, threshold):
    """Equal ids up to the first step that is not decided. Returns how many steps were equal and where the texts part."""
    for step, (mine, theirs, margin) in enumerate(zip(ours, reference, margins)):
        if mine != theirs:
            assert margin <= threshold, f"{name}: step {step} gives {mine}, the reference {theirs} with a margin of {margin}"
            return step, margin
    return min(len(ours), len(reference)), None


def main():
    binary, model = sys.argv[1], sys.argv[2]
    if not os.path.exists(model):
        print(f"{model} is not there; ./test fetches it")
        return 77
    prompts = json.loads(REFERENCE.read_text())["prompts"]
    worst = 0.0
    exact = Server(binary, model, "--compute", "fp32", "--kv-cache-dtype", "fp32")
    first_logprobs = {}
    for prompt in prompts:
        oracle = prompt["oracle"]
        ids, logprobs = complete(exact, prompt["ids"], len(oracle["tokens"]))
        same, margin = check_greedy("fp32: " + prompt["question"], ids, oracle["tokens"], oracle["margins"], FP32_MARGIN)
        print(f"fp32  {prompt['question'][:44]:46}{same}/{len(oracle['tokens'])} equal" + (f", parted at a margin of {margin}" if margin else ""))
        first_logprobs[prompt["question"]] = (ids, logprobs)
    assert exact.stop() == 0

    server = Server(binary, model)
    for prompt in prompts:
        oracle = prompt["oracle"]
        ids, logprobs = complete(server, prompt["ids"], len(oracle["tokens"]))
        same, margin = check_greedy("bf16: " + prompt["question"], ids, oracle["tokens"], oracle["margins"], 2 * ERROR_BOUND)
        exact_ids, exact_logprobs = first_logprobs[prompt["question"]]
        for mine, theirs, a, b in zip(ids, exact_ids, logprobs, exact_logprobs):
            if mine != theirs:
                break
            worst = max(worst, abs(a - b))
        llama = prompt["llama_cpp"]
        other, _ = check_greedy("", ids, llama["tokens"], [0.0] * len(llama["tokens"]), 1.0)
        print(f"bf16  {prompt['question'][:44]:46}{same}/{len(oracle['tokens'])} equal" + (f", parted at a margin of {margin}" if margin else "") +
              f"; with llama.cpp {other}/{len(llama['tokens'])}")
    print(f"largest difference between BF16 and FP32 logprobs of the same tokens: {worst:.4f}")
    assert worst <= ERROR_BOUND, f"BF16 logprobs are off by {worst}"

    for prompt in prompts:
        wanted = prompt.get("answer_contains")
        if not wanted:
            continue
        body = {"messages": [{"role": "user", "content": prompt["question"]}], "temperature": 0, "max_tokens": 48}
        text = server.post("/v1/chat/completions", body)["choices"][0]["message"]["content"]
        assert wanted.lower() in text.lower(), f"{prompt['question']!r} was answered with {text!r}; expected {wanted!r} in it"
    assert server.stop() == 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
