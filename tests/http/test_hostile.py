"""Input that nobody means well with: each gets a clear error, and the server still answers afterwards."""

import json
import subprocess
import tempfile
import unittest
from pathlib import Path

from serving import BINARY, Server

CHAT = "/v1/chat/completions"


def chat(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, **fields}).encode()


# What is sent, the status, and a word that the message must have.
BODIES = {
    "nothing": (b"", 400, "empty"),
    "a list": (b"[]", 400, "object"),
    "half of an object": (b'{"messages": [', 400, "JSON"),
    "invalid UTF-8": (b'{"messages": "\xff\xfe"}', 400, "UTF-8"),
    "a lone surrogate": (b'{"messages": "\\ud800"}', 400, "JSON"),
    "deep nesting": (b'{"messages": ' + b"[" * 200_000, 400, "JSON"),
    "20 MB": (b'{"messages": "' + b"x" * 20_000_000 + b'"}', 413, "--max-body"),
    "no messages": (chat(messages=[]), 400, "messages"),
    "messages of the wrong type": (chat(messages="hi"), 400, "messages"),
    "a picture": (chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), 400, "text"),
    "a prompt beyond the context": (chat(messages=[{"role": "user", "content": "a b " * 200_000}]), 400, "context"),
    "a huge number": (chat(max_tokens=10**30), 400, "max_tokens"),
    "a boolean for a number": (chat(temperature=True), 400, "temperature"),
}


class Bodies(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_until_ready()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == 0

    def still_answers(self):
        status, body = self.server.post(CHAT, chat())
        self.assertEqual(status, 200, body)
        self.assertEqual(body["usage"]["completion_tokens"], 1)

    def test_bodies(self):
        for name, (sent, wanted, word) in BODIES.items():
            with self.subTest(name):
                status, body = self.server.post(CHAT, sent)
                self.assertEqual(status, wanted, body)
                self.assertEqual(set(body["error"]), {"message", "type", "param", "code"})
                self.assertIn(word, body["error"]["message"])
                self.assertLess(len(body["error"]["message"]), 300)
                self.still_answers()

    def test_token_ids_that_do_not_exist(self):
        for ids in ([10**9], [-1], [1.5], [49152]):
            status, body = self.server.post("/v1/completions", json.dumps({"prompt": ids}).encode())
            self.assertEqual(status, 400, body)
            self.assertEqual(body["error"]["param"], "prompt[0]")
        self.still_answers()

    def test_other_content_types(self):
        status, body = self.server.post(CHAT, chat(), "text/plain")
        self.assertEqual(status, 415, body)
        self.assertIn("application/json", body["error"]["message"])

    def test_other_methods_and_paths(self):
        status, headers, body = self.server.request("GET", CHAT)
        self.assertEqual((status, headers["allow"]), (405, "POST"), body)
        self.assertEqual(self.server.get("/v1/nothing")[0], 404)


def fails(*arguments):
    """Runs the command, which must fail in an orderly way; its message."""
    ran = subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert ran.returncode == 1, (ran.returncode, ran.stderr)
    assert "panicked" not in ran.stderr, ran.stderr
    return ran.stderr


class Command(unittest.TestCase):
    def test_a_port_in_use(self):
        server = Server()
        message = fails("serve", "--port", str(server.port))
        self.assertIn(str(server.port), message)
        self.assertIn("--port", message)
        # Also while it loads, the end is an orderly one.
        self.assertEqual(server.end(), 0)

    def test_a_model_that_is_not_there(self):
        for command in (["serve", "nonsense/model", "--port", "0"], ["generate", "nonsense/model", "--prompt", "hi"]):
            self.assertIn("nonsense/model", fails(*command))

    def test_damaged_models(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "damaged.gguf"
            for content in (b"", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"not a model at all"):
                file.write_bytes(content)
                self.assertIn("damaged.gguf", fails("generate", str(file), "--prompt", "hi"))
                self.assertIn("damaged.gguf", fails("serve", str(file), "--port", "0"))


if __name__ == "__main__":
    unittest.main()
