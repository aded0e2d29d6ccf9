"""What a running server tells of its KV cache: the log file, the event stream, and the replay of both."""

import http.client
import json
import subprocess
import tempfile
import threading
import time
import unittest
from pathlib import Path

from serving import BINARY, DEADLINE, MODEL, Server

MODELS = [MODEL] if MODEL else []
CHAT = {"messages": [{"role": "user", "content": "Count from one to thirty."}], "temperature": 0}


def replay(lines):
    """The outcome of every group's layout; an error in one of them fails the command."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(lines) + "\n")
        file.flush()
        ran = subprocess.run([BINARY, "plan", "replay", file.name], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, (ran.returncode, ran.stdout[-2000:], ran.stderr)
    return [json.loads(line) for line in ran.stdout.splitlines()]


class Follower:
    """Reads the event stream on a thread of its own until the server ends it."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=DEADLINE)
        self.connection.request("GET", "/v1/geometry/events")
        self.response = self.connection.getresponse()
        assert self.response.status == 200
        assert self.response.headers["Content-Type"] == "text/event-stream"
        self.lines = []
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        for line in self.response:
            if line.startswith(b"data: "):
                self.lines.append(line[6:].decode().rstrip("\n"))

    def wait(self, count):
        began = time.monotonic()
        while len(self.lines) < count:
            assert time.monotonic() - began < DEADLINE, f"only {len(self.lines)} lines of {count}"
            time.sleep(0.02)

    def end(self):
        self.thread.join(DEADLINE)
        self.connection.close()
        return self.lines


class Geometry(unittest.TestCase):
    def test_a_log_is_what_happened(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "geometry.jsonl"
            ask = [BINARY, "generate", *MODELS, "--prompt", "What is the capital of France?", "--temperature", "0", "--json"]
            ran = subprocess.run([*ask, "--max-kv-size", "16", "--geometry-log", str(log)], capture_output=True, text=True, timeout=300)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            report = json.loads(ran.stdout)
            lines = log.read_text().splitlines()
        self.assertEqual(json.loads(lines[0]), {"group": 0, "layouts": [{"kind": "rotating", "max_size": 16, "sinks": 4}]})
        [outcome] = replay(lines)
        appends = [step for step in outcome["steps"] if "sees" in step]
        # The last token chosen is not always run: whether it is depends on what ended the answer.
        total = report["prompt_tokens"] + len(report["tokens"])
        self.assertIn(appends[-1]["state"]["offsets"][0] - total, (-1, 0, 1))
        for step in appends:
            for query, seen in enumerate(step["sees"][0]):
                # Serial numbers from 1 on: with one row, a token's position and one more.
                position = step["rope_offsets"][0] + query
                newest = range(max(4, position - 11), position + 1)
                self.assertEqual(seen, [at + 1 for at in [*range(min(4, position + 1)), *newest]])

    def test_followers_see_what_the_log_says(self):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "geometry.jsonl"
            server = Server("--geometry-log", str(log)).wait_until_ready()
            first = Follower(server)
            body = json.dumps(CHAT | {"max_tokens": 40}).encode()
            answering = threading.Thread(target=server.post, args=("/v1/chat/completions", body))
            answering.start()
            first.wait(6)
            late = Follower(server)
            answering.join()
            server.post("/v1/chat/completions", json.dumps(CHAT | {"max_tokens": 4}).encode())
            began = time.monotonic()
            self.assertEqual(server.end(), 0)
            self.assertLess(time.monotonic() - began, 5, "a follower kept the server from ending")
            lines = log.read_text().splitlines()
        self.assertEqual(first.end(), lines)
        self.assertEqual(len(replay(lines)), 2)
        caught_up = late.end()
        self.assertIn("layouts", json.loads(caught_up[0]))
        self.assertEqual(json.loads(caught_up[1])["op"]["op"], "adopt")
        self.assertEqual(caught_up[2:], lines[-len(caught_up) + 2:])
        self.assertEqual(replay(caught_up)[-1]["steps"][-1], replay(lines)[-1]["steps"][-1])

    def test_a_log_that_cannot_be_written_is_said_at_once(self):
        ran = subprocess.run([BINARY, "serve", *MODELS, "--port", "0", "--geometry-log", "/no/such/folder/log.jsonl"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("cannot write the geometry log /no/such/folder/log.jsonl", ran.stderr)


if __name__ == "__main__":
    unittest.main()
