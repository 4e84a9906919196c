#!/usr/bin/env python3
"""`sterling chat` as a person and as a script use it.

  chat_pty_test.py --binary build/release/sterling                                          a stub of the API
  chat_pty_test.py --binary build/release/sterling --model SmolLM2-135M-Instruct.Q4_1.gguf  a model in the same process

Exit 77: skipped, with the reason on stderr (the program or the model is not there).
"""

import argparse
import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
import unittest

WAIT = 60  # seconds for anything to appear; a model may be slow under sanitizers
ARGUMENTS = None


def skip(reason):
    print(f"skipped: {reason}", file=sys.stderr)
    sys.exit(77)


class Terminal:
    """The program on a pseudo-terminal of its own, in a session of its own, so that Ctrl-C is the terminal's."""

    def __init__(self, *arguments, environment=None):
        self.pid, self.descriptor = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm", **(environment or {}))
            os.execv(ARGUMENTS.binary, [ARGUMENTS.binary, "chat", *arguments])
        self.seen = ""
        self.status = None

    def read_some(self, seconds):
        ready, _, _ = select.select([self.descriptor], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # the other end is closed
            data = b""
        self.seen += data.decode("utf-8", "replace")
        return bool(data)

    def expect(self, pattern, seconds=None):
        """Waits for the pattern in what comes, and takes everything up to its end."""
        deadline = time.monotonic() + (seconds or WAIT)
        while True:
            found = re.search(pattern, self.seen)
            if found:
                taken, self.seen = self.seen[: found.end()], self.seen[found.end() :]
                return taken
            left = deadline - time.monotonic()
            if left <= 0 or not self.read_some(left):
                raise AssertionError(f"{pattern!r} did not come; seen: {self.seen!r}")

    def type(self, text):
        os.write(self.descriptor, text.encode())

    def leave(self):
        """Reads to the end; the exit code."""
        if self.status is None:
            while self.read_some(WAIT):
                pass
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.descriptor)
        return self.status

    def abandon(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.status = -9


class Stub(http.server.ThreadingHTTPServer):
    """The two routes that chat uses. Answers follow from the last message: slow words, an error, escape sequences, an echo."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.requests = []
        self.keys = []
        self.dropped = threading.Event()  # a client went away in the middle of an answer
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class StubHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, document):
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.reply(200, {"object": "list", "data": [{"id": "stub-model"}]})

    def event(self, document):
        text = document if isinstance(document, str) else json.dumps(document)
        data = f"data: {text}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        self.server.keys.append(self.headers.get("Authorization"))
        question = request["messages"][-1]["content"]
        if question == "fail":
            self.reply(400, {"error": {"message": "must be below 2", "type": "invalid_request_error", "param": "temperature"}})
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        pieces = {"slow": ["word "] * 400, "escape": ["a\x1b]0;title\x07b"], "break": ["half "]}.get(question, ["echo ", question])
        try:
            for piece in pieces:
                self.event({"choices": [{"index": 0, "delta": {"content": piece}}]})
                if question == "slow":
                    time.sleep(0.05)
            if question == "break":
                self.wfile.write(b"0\r\n\r\n")
                return
            self.event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
            self.event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": len(pieces)}})
            self.event("[DONE]")
            self.wfile.write(b"0\r\n\r\n")
        except (BrokenPipeError, ConnectionResetError):
            self.server.dropped.set()
            self.close_connection = True


def run(*arguments, stdin="", environment=None):
    return subprocess.run(
        [ARGUMENTS.binary, "chat", *arguments], input=stdin, capture_output=True, text=True, timeout=WAIT * 4,
        env={**os.environ, **(environment or {})}
    )


def turns(request):
    return [(message["role"], message["content"]) for message in request["messages"]]


class OnATerminal(unittest.TestCase):
    def setUp(self):
        self.stub = Stub()
        self.addCleanup(self.stub.server_close)
        self.addCleanup(self.stub.shutdown)

    def start(self, *arguments, **options):
        terminal = Terminal(self.stub.url, *arguments, **options)
        self.addCleanup(terminal.abandon)
        terminal.expect("> ")
        return terminal

    def test_a_conversation(self):
        terminal = self.start("--system", "Be brief.", "--temperature", "0", "--max-tokens", "9", "--seed", "4")
        terminal.type("one\n")
        terminal.expect("echo one")
        terminal.expect(r"tokens")
        terminal.expect("> ")
        terminal.type("two\n")
        terminal.expect("echo two")
        terminal.expect("> ")
        terminal.type("/reset\n")
        terminal.expect("forgotten")
        terminal.type("/system Be long.\n")
        terminal.expect("is set")
        terminal.type("//three\n")
        terminal.expect("echo /three")
        terminal.type("/quit\n")
        self.assertEqual(terminal.leave(), 0)
        first, second, third = self.stub.requests
        self.assertEqual(turns(first), [("system", "Be brief."), ("user", "one")])
        self.assertEqual(
            turns(second), [("system", "Be brief."), ("user", "one"), ("assistant", "echo one"), ("user", "two")]
        )
        self.assertEqual(turns(third), [("system", "Be long."), ("user", "/three")])
        self.assertEqual((first["model"], first["temperature"], first["max_tokens"], first["seed"]), ("stub-model", 0, 9, 4))

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        terminal = self.start()
        terminal.type("slow\n")
        terminal.expect("word word ")
        terminal.type("\x03")
        terminal.expect(r"\[stopped\]", 10)
        terminal.expect("> ")
        self.assertTrue(self.stub.dropped.wait(WAIT), "the request was not cancelled")
        terminal.type("after\n")
        terminal.expect("echo after")
        terminal.type("/quit\n")
        self.assertEqual(terminal.leave(), 0)
        kept = turns(self.stub.requests[1])
        self.assertEqual([role for role, _ in kept], ["user", "assistant", "user"])
        self.assertTrue(kept[1][1].startswith("word word "))

    def test_leaving_with_ctrl_c_twice_and_with_ctrl_d(self):
        terminal = self.start()
        terminal.type("\x03")
        terminal.expect("leaves")
        terminal.expect("> ")
        terminal.type("still here\n")  # the first one counts no more
        terminal.expect("echo still here")
        terminal.expect("> ")
        terminal.type("\x03")
        terminal.expect("leaves")
        terminal.expect("> ")
        terminal.type("\x03")
        self.assertEqual(terminal.leave(), 0)
        terminal = self.start()
        terminal.type("\x04")
        self.assertEqual(terminal.leave(), 0)

    def test_errors_leave_the_conversation_standing(self):
        terminal = self.start()
        terminal.type("fail\n")
        self.assertIn("temperature", terminal.expect(r"error: .*\n"))
        terminal.expect("> ")
        terminal.type("break\n")
        terminal.expect("error: .*before it was complete")
        terminal.expect("> ")
        terminal.type("/rset\n")
        terminal.expect("did you mean /reset")
        terminal.expect("> ")
        terminal.type("again\n")
        terminal.expect("echo again")
        terminal.type("/quit\n")
        self.assertEqual(terminal.leave(), 0)
        self.assertEqual(turns(self.stub.requests[-1]), [("user", "again")])

    def test_a_model_cannot_drive_the_terminal(self):
        terminal = self.start(environment={"NO_COLOR": "1"})
        terminal.type("escape\n")
        taken = terminal.expect("title.b")
        terminal.type("/quit\n")
        self.assertEqual(terminal.leave(), 0)
        self.assertNotIn("\x1b", taken + terminal.seen)


class OnPipes(unittest.TestCase):
    def setUp(self):
        self.stub = Stub()
        self.addCleanup(self.stub.server_close)
        self.addCleanup(self.stub.shutdown)

    def test_ask(self):
        done = run(self.stub.url, "--ask", "hello", environment={"STERLING_API_KEY": "secret"})
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "echo hello\n", ""))
        self.assertEqual(self.stub.keys, ["Bearer secret"])

    def test_ask_with_json(self):
        done = run(self.stub.url + "/v1", "--ask", "hello", "--json")
        document = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0)
        self.assertEqual((document["answer"], document["model"]), ("echo hello", "stub-model"))
        self.assertEqual((document["finish_reason"], document["completion_tokens"]), ("stop", 2))

    def test_each_line_is_a_turn(self):
        done = run(self.stub.url, stdin="one\n\ntwo\n/reset\nthree")
        self.assertEqual((done.returncode, done.stdout), (0, "echo one\necho two\necho three\n"))
        self.assertEqual([len(request["messages"]) for request in self.stub.requests], [1, 3, 1])

    def test_a_failed_turn_ends_with_1(self):
        done = run(self.stub.url, stdin="fail\nnever asked\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("temperature", done.stderr)
        self.assertEqual(len(self.stub.requests), 1)
        done = run(self.stub.url, "--ask", "fail", "--json")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(json.loads(done.stdout)["error"]["where"], "temperature")

    def test_ctrl_c_during_ask_ends_the_program(self):
        process = subprocess.Popen(
            [ARGUMENTS.binary, "chat", self.stub.url, "--ask", "slow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.assertEqual(process.stdout.read(5), b"word ")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=WAIT)
        self.assertEqual(process.returncode, 1)
        self.assertTrue(self.stub.dropped.wait(WAIT))

    def test_requests_that_cannot_be(self):
        for arguments, code, said in (
            (["https://example.com"], 1, "https is not supported"),
            (["http://127.0.0.1:1", "--ask", "x"], 1, "cannot connect to 127.0.0.1:1"),
            (["http://nowhere:0"], 2, "port"),
            ([], 2, "MODEL"),
            ([self.stub.url, "--threads", "2"], 2, "--threads"),
            ([self.stub.url, "--json"], 2, "--ask"),
            ([self.stub.url, "--temperature", "warm"], 2, "--temperature"),
            ([self.stub.url, "--temprature", "1"], 2, "--temperature"),
            (["localhost:8000"], 2, "http://localhost:8000"),
            (["/no/such/model"], 1, "/no/such/model"),
        ):
            done = run(*arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assertIn(said, done.stderr, arguments)
            if "--json" in arguments:
                self.assertEqual(json.loads(done.stdout)["error"]["code"], "invalid_argument")
            else:
                self.assertEqual(done.stdout, "", arguments)


class WithAModel(unittest.TestCase):
    def test_ask(self):
        done = run(ARGUMENTS.model, "--ask", "What is the capital of France?", "--temperature", "0", "--max-tokens", "40")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("Paris", done.stdout)

    def test_a_conversation_on_a_terminal(self):
        terminal = Terminal(ARGUMENTS.model, "--temperature", "0")
        self.addCleanup(terminal.abandon)
        terminal.expect("> ", WAIT * 4)
        terminal.type("Write a very long story about a lighthouse.\n")
        terminal.expect(r"\w+ \w+ \w+ \w+ ", WAIT * 2)  # some of it has come, after the echo of the line itself
        terminal.expect(r"\w+ \w+ \w+ \w+ ", WAIT * 2)
        terminal.expect(r"\w+ \w+ \w+ \w+ ", WAIT * 2)
        terminal.type("\x03")
        terminal.expect(r"\[stopped\]")
        terminal.expect("> ")
        terminal.type("/reset\n")
        terminal.expect("forgotten")
        terminal.expect("> ")
        terminal.type("What is the capital of France?\n")
        terminal.expect(r"Paris[^\[]*", WAIT * 2)
        terminal.expect(r"tokens/s", WAIT * 2)
        terminal.expect("> ")
        terminal.type("/quit\n")
        self.assertEqual(terminal.leave(), 0)


def main():
    global ARGUMENTS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model")
    ARGUMENTS, rest = parser.parse_known_args()
    if not os.access(ARGUMENTS.binary, os.X_OK):
        skip(f"{ARGUMENTS.binary} is not there")
    if ARGUMENTS.model is not None and not os.path.exists(ARGUMENTS.model):
        skip(f"no model at {ARGUMENTS.model!r}")
    cases = [WithAModel] if ARGUMENTS.model is not None else [OnATerminal, OnPipes]
    loader = unittest.TestLoader()
    suite = unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in cases)
    sys.exit(0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1)


if __name__ == "__main__":
    main()
