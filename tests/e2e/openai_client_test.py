#!/usr/bin/env python3
"""The official openai client drives the server.

  openai_client_test.py --binary build/release/sterling --model SmolLM2-135M-Instruct.Q4_1.gguf
  openai_client_test.py --fake build/release/tests/e2e/fake_server     (a scripted engine, no model)

Exit 77: skipped, with the reason on stderr (the client is not installed, the model is not there).
"""

import argparse
import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest
import urllib.request


def skip(reason):
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)


try:
    import openai
except ImportError:
    skip("the Python package openai is not installed")

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class Server:
    """A server process on loopback with a port of its own."""

    def __init__(self, arguments):
        if arguments.fake:
            command = [arguments.fake]
        else:
            command = [arguments.binary, "serve", arguments.model, "--port", "0"]
        self.real = not arguments.fake
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.lines = []
        self.ready = threading.Event()
        self.address = None
        threading.Thread(target=self.read_log, daemon=True).start()
        if not self.ready.wait(timeout=300) or self.address is None:
            raise RuntimeError("the server did not become ready:\n" + "".join(self.lines))

    def read_log(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"ready address=(\S+)", line)
            if found:
                self.address = found.group(1)
                self.ready.set()
        self.ready.set()

    def client(self, **options):
        options.setdefault("max_retries", 0)
        options.setdefault("timeout", 120)
        return openai.OpenAI(base_url=self.address + "/v1", api_key="unused", **options)

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=30) as answer:
            return answer.read().decode()

    def metric(self, name):
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics"), re.M))

    def stop(self):
        if self.real:
            self.process.send_signal(signal.SIGTERM)
        else:
            self.process.stdin.close()
        return self.process.wait(timeout=60)


def wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


class ClientTest(unittest.TestCase):
    server = None  # set by main

    @classmethod
    def setUpClass(cls):
        cls.client = cls.server.client()
        cls.model = cls.client.models.list().data[0].id

    def chat(self, **options):
        options.setdefault("messages", QUESTION)
        options.setdefault("temperature", 0)
        options.setdefault("max_completion_tokens", 40)
        return self.client.chat.completions.create(model=self.model, **options)

    def test_models(self):
        self.assertEqual(self.client.models.retrieve(self.model).id, self.model)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nobody")

    def test_chat(self):
        answer = self.chat()
        choice = answer.choices[0]
        self.assertIn("Paris", choice.message.content)
        self.assertEqual(choice.message.role, "assistant")
        self.assertIn(choice.finish_reason, ("stop", "length"))
        self.assertEqual(answer.model, self.model)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertGreater(answer.usage.prompt_tokens, 5)
        self.assertEqual(self.chat().choices[0].message.content, choice.message.content)

    def test_streaming_gives_the_same(self):
        for n in (1, 2):
            whole = self.chat(n=n, temperature=0.9, seed=5, logprobs=True, top_logprobs=2)
            texts, finishes, tokens, usage = [""] * n, [None] * n, [[] for _ in range(n)], None
            seen = set()
            for chunk in self.chat(n=n, temperature=0.9, seed=5, logprobs=True, top_logprobs=2, stream=True,
                                   stream_options={"include_usage": True}):
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    if choice.index not in seen:
                        self.assertEqual(choice.delta.role, "assistant")
                        seen.add(choice.index)
                    texts[choice.index] += choice.delta.content or ""
                    if choice.logprobs:
                        tokens[choice.index] += choice.logprobs.content
                    if choice.finish_reason:
                        self.assertIsNone(finishes[choice.index])
                        finishes[choice.index] = choice.finish_reason
            self.assertEqual(texts, [c.message.content for c in whole.choices])
            self.assertEqual(finishes, [c.finish_reason for c in whole.choices])
            self.assertEqual(tokens, [c.logprobs.content for c in whole.choices])
            self.assertEqual(usage, whole.usage)

    def test_logprobs(self):
        answer = self.chat(logprobs=True, top_logprobs=5)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(len(entries), answer.usage.completion_tokens)
        text = b"".join(bytes(e.bytes) for e in entries).decode(errors="replace")
        self.assertTrue(text.startswith(answer.choices[0].message.content.rstrip("\ufffd")), text)
        for entry in entries:
            self.assertLessEqual(entry.logprob, 0)
            values = [t.logprob for t in entry.top_logprobs]
            self.assertEqual(len(values), 5)
            self.assertEqual(values, sorted(values, reverse=True))
            self.assertEqual(entry.logprob, values[0], "greedy takes the best")
        self.assertIsNone(self.chat().choices[0].logprobs)

    def test_seed(self):
        def draw(seed):
            answer = self.chat(temperature=1, seed=seed, n=3, max_completion_tokens=16)
            return [c.message.content for c in answer.choices]

        first = draw(-12345)
        self.assertEqual(first, draw(-12345))
        self.assertGreater(len(set(first)), 1, "choices of one request differ")
        self.assertTrue(any(draw(seed) != first for seed in range(4)))

    def test_stop(self):
        whole = self.chat(max_completion_tokens=30).choices[0].message.content
        stop = whole[len(whole) // 2 : len(whole) // 2 + 3]
        answer = self.chat(max_completion_tokens=30, stop=[stop, "never to be seen"])
        self.assertEqual(answer.choices[0].message.content, whole[: whole.index(stop)])
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.choices[0].stop_reason, stop)

    def test_max_tokens(self):
        answer = self.chat(max_completion_tokens=5)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 5)

    def test_completions(self):
        create = self.client.completions.create
        text = create(model=self.model, prompt="The capital of France", max_tokens=8, temperature=0, logprobs=2,
                      extra_body={"return_token_ids": True})
        choice = text.choices[0]
        self.assertEqual(len(choice.token_ids), text.usage.completion_tokens)
        self.assertEqual(len(choice.logprobs.tokens), len(choice.token_ids))
        ids = create(model=self.model, prompt=choice.prompt_token_ids, max_tokens=8, temperature=0)
        self.assertEqual(ids.choices[0].text, choice.text)
        several = create(model=self.model, prompt=[choice.prompt_token_ids] * 2, max_tokens=8, temperature=0, n=2)
        self.assertEqual([c.text for c in several.choices], [choice.text] * 4)
        self.assertEqual([c.index for c in several.choices], [0, 1, 2, 3])
        stream = create(model=self.model, prompt="The capital of France", max_tokens=8, temperature=0, stream=True)
        self.assertEqual("".join(c.choices[0].text for c in stream if c.choices), choice.text)
        self.assertEqual(create(model=self.model, prompt="Hi").usage.completion_tokens, 16, "OpenAI's default")

    def test_scoring_a_prompt(self):
        answer = self.client.completions.create(model=self.model, prompt="The capital of France is Paris", echo=True,
                                                max_tokens=0, logprobs=0)
        choice = answer.choices[0]
        self.assertEqual(choice.text, "The capital of France is Paris")
        self.assertEqual(len(choice.logprobs.token_logprobs), answer.usage.prompt_tokens)
        self.assertIsNone(choice.logprobs.token_logprobs[0])
        self.assertTrue(all(p <= 0 for p in choice.logprobs.token_logprobs[1:]))
        self.assertEqual(answer.usage.completion_tokens, 0)

    def test_errors_are_typed_and_name_the_field(self):
        def refused(kind, param, *words, **options):
            with self.assertRaises(kind) as caught:
                self.chat(**options)
            self.assertEqual(caught.exception.param, param)
            for word in words:
                self.assertIn(word, str(caught.exception))

        refused(openai.BadRequestError, "temperature", "3", temperature=3)
        refused(openai.BadRequestError, "messages", messages=[])
        refused(openai.BadRequestError, "messages[0].role", "wizard", messages=[{"role": "wizard", "content": "x"}])
        refused(openai.BadRequestError, "max_completion_tokens", "1000000000", "at most", max_completion_tokens=10**9)
        refused(openai.BadRequestError, "messages", "at most", messages=[{"role": "user", "content": "a b " * 40000}])
        refused(openai.BadRequestError, "stop_token_ids[0]", extra_body={"stop_token_ids": [10**8]})
        refused(openai.BadRequestError, "tools", tools=[{"type": "function", "function": {"name": "f"}}])
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.chat.completions.create(model="gpt-4o", messages=QUESTION)
        self.assertEqual(caught.exception.code, "model_not_found")
        self.assertEqual(caught.exception.param, "model")

    def test_a_stream_that_is_closed_is_cancelled(self):
        before = self.server.metric("sterling:sequences_cancelled_total")
        stream = self.chat(n=2, stream=True, max_completion_tokens=1000, extra_body={"ignore_eos": True})
        for _, _chunk in zip(range(6), stream):
            pass
        stream.close()
        self.assertTrue(wait_for(lambda: self.server.metric("sterling:sequences_cancelled_total") >= before + 2))
        self.assertTrue(wait_for(lambda: self.server.metric("sterling:num_requests_running") == 0))

    def test_a_client_that_gives_up_is_cancelled(self):
        before = self.server.metric("sterling:sequences_cancelled_total")
        with self.assertRaises(openai.APITimeoutError):
            self.server.client(timeout=0.5).chat.completions.create(
                model=self.model, messages=QUESTION, max_completion_tokens=3000, extra_body={"ignore_eos": True})
        self.assertTrue(wait_for(lambda: self.server.metric("sterling:sequences_cancelled_total") >= before + 1))
        self.assertTrue(wait_for(lambda: self.server.metric("sterling:num_requests_running") == 0))

    def test_many_at_once_answer_as_one_alone(self):
        alone = self.chat(max_completion_tokens=24, logprobs=True)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.chat(max_completion_tokens=24, logprobs=True), range(8)))
        for answer in answers:
            self.assertEqual(answer.choices[0].message.content, alone.choices[0].message.content)
            self.assertEqual(answer.choices[0].logprobs, alone.choices[0].logprobs, "to the last bit")

    def test_zz_sigterm_lets_a_stream_finish(self):
        stream = self.chat(stream=True, max_completion_tokens=30)
        next(iter(stream))
        code = []
        stopper = threading.Thread(target=lambda: code.append(self.server.stop()))
        stopper.start()
        finish = None
        for chunk in stream:
            finish = (chunk.choices[0].finish_reason if chunk.choices else None) or finish
        stopper.join()
        self.assertIn(finish, ("stop", "length"))
        self.assertEqual(code, [0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary")
    parser.add_argument("--model", default="")
    parser.add_argument("--fake")
    arguments = parser.parse_args()
    if not arguments.fake:
        if not arguments.binary or not os.path.exists(arguments.binary):
            skip(f"no server program at {arguments.binary!r}")
        if not arguments.model or not os.path.exists(arguments.model):
            skip("the chat model is not there (./test fetches it)")
    ClientTest.server = Server(arguments)
    try:
        result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromTestCase(ClientTest))
    finally:
        if ClientTest.server.process.poll() is None:
            ClientTest.server.process.kill()
    if not result.wasSuccessful():
        print("--- server log\n" + "".join(ClientTest.server.lines[-50:]), file=sys.stderr)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
