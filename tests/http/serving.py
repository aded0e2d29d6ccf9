"""Runs the binary: starts it on a free port, waits until it is ready, and ends it as a user would."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

import openai

BINARY = os.environ["HTTP_TEST_BINARY"]
MODEL = os.environ.get("HTTP_TEST_MODEL") or None

# Loading a small model takes a second or two; whoever waits longer waits for something that will not come.
DEADLINE = 120


class Server:
    """A server of its own for a test class, with further flags."""

    def __init__(self, *flags):
        self.log = tempfile.TemporaryFile()
        command = [BINARY, "serve", *([MODEL] if MODEL else []), "--port", "0", *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        found = re.fullmatch(r"listening on (http://127\.0\.0\.1:(\d+))\n", line)
        assert found, f"no address in {line!r}; the log: {self.logged()}"
        self.url, self.port = found[1], int(found[2])

    def wait_until_ready(self):
        """Polls /health, which must be `loading` until it is ready, and answer from the first moment."""
        began = time.monotonic()
        while True:
            status, health = self.get("/health")
            if status == 200:
                assert health["status"] == "ready", health
                return self
            assert (status, health) == (503, {"status": "loading"}), health
            assert time.monotonic() - began < DEADLINE, "the model does not load"
            time.sleep(0.05)

    def request(self, method, path, body=None, headers=None):
        """One request without any help: the status, the headers and the parsed body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)
        try:
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            return response.status, response.headers, json.loads(response.read())
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.request("GET", path)
        return status, body

    def post(self, path, body, content_type="application/json"):
        status, _, body = self.request("POST", path, body, {"Content-Type": content_type})
        return status, body

    def client(self):
        """The official client, which must not hide failures by trying again."""
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0, timeout=DEADLINE)

    def logged(self):
        self.log.seek(0)
        return self.log.read().decode()

    def end(self):
        """Ends the server as `kill` does, and gives its exit status."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        finally:
            self.process.kill()
            self.process.stdout.close()
            self.log.close()
