"""The real server recalls values over 4,096 tokens with the committed recall model.

usage: recall_test.py STERLING MODEL_FOLDER

Each prompt of MODEL_FOLDER/prompts.jsonl holds its questions with their answers, so one pass scores them all: with echo and logprobs the
server returns the log probability of every prompt token. An answer with a probability above one half is the model's first choice; the count
of these is at most what greedy decoding would recall. A few questions are also asked by themselves, as prompts that end at the key.
"""

import json
import math
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

REQUIRED = 0.99
LEAST_LENGTH = 4096
ASKED_ALONE = 4


class Server:
    def __init__(self, binary, model):
        self.process = subprocess.Popen([binary, "serve", model, "--port", "0"], stderr=subprocess.PIPE, text=True)
        self.url, log = None, []
        for line in self.process.stderr:
            log.append(line)
            if " ready address=" in line:
                self.url = line.split("ready address=")[1].split()[0]
                break
        if self.url is None:
            raise SystemExit("the server did not start:\n" + "".join(log))
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def complete(self, body):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.load(answer)["choices"][0]

    def stop(self):
        self.process.terminate()
        return self.process.wait(60)


def scored(server, prompt):
    """How many answers within the prompt have a probability above one half."""
    choice = server.complete({"prompt": prompt["ids"], "max_tokens": 0, "echo": True, "logprobs": 0, "temperature": 0})
    logprobs = choice["logprobs"]["token_logprobs"]
    assert len(logprobs) == len(prompt["ids"]), f"{len(logprobs)} logprobs for {len(prompt['ids'])} prompt tokens"
    return sum(logprobs[at + 1] > math.log(0.5) for at in prompt["positions"])


def asked(server, prompt):
    """How many of the last questions, each the end of its own prompt, get their value."""
    ordered = sorted(zip(prompt["positions"], prompt["answers"]))[-ASKED_ALONE:]
    right = 0
    for at, answer in ordered:
        body = {"prompt": prompt["ids"][: at + 1], "max_tokens": 1, "temperature": 0, "return_token_ids": True}
        right += server.complete(body)["token_ids"] == [answer]
    return right


def main():
    binary, model = sys.argv[1], Path(sys.argv[2])
    prompts = [json.loads(line) for line in (model / "prompts.jsonl").read_text().splitlines()]
    assert prompts and all(len(prompt["ids"]) >= LEAST_LENGTH for prompt in prompts)
    server = Server(binary, str(model))
    try:
        right = sum(scored(server, prompt) for prompt in prompts)
        alone = asked(server, prompts[0])
    finally:
        status = server.stop()
    total = sum(len(prompt["positions"]) for prompt in prompts)
    print(f"recalled {right} of {total} within prompts, {alone} of {ASKED_ALONE} alone")
    assert right >= REQUIRED * total, f"{right} of {total} answers recalled; at least {REQUIRED:.0%} expected"
    assert alone == ASKED_ALONE, f"{alone} of {ASKED_ALONE} questions answered by greedy decoding"
    assert status == 0, f"the server ended with {status}"


if __name__ == "__main__":
    main()
