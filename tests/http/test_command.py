"""The command line with a real model."""

import json
import signal
import subprocess
import time
import unittest

from serving import BINARY, MODEL, Server

MODELS = [MODEL] if MODEL else []


def annulus(*arguments, text=None):
    ran = subprocess.run([BINARY, *arguments], input=text, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    return ran.stdout


class Generate(unittest.TestCase):
    ASK = ["generate", *MODELS, "--prompt", "What is the capital of France?", "--temperature", "0", "--max-tokens", "24"]

    def test_text_and_json_say_the_same(self):
        text = annulus(*self.ASK)
        self.assertIn("Paris", text)
        report = json.loads(annulus(*self.ASK, "--json"))
        self.assertEqual(
            list(report),
            ["prompt_tokens", "tokens", "text", "finish_reason", "prompt_tps", "generation_tps", "peak_memory_bytes"],
        )
        self.assertEqual(report["text"] + "\n", text)
        self.assertEqual(report["finish_reason"], "stop")
        self.assertTrue(report["tokens"] and all(isinstance(token, int) for token in report["tokens"]))
        self.assertGreater(report["prompt_tokens"], 5)
        self.assertGreater(report["generation_tps"], 0)
        self.assertGreater(report["prompt_tps"], 0)
        self.assertGreater(report["peak_memory_bytes"], 50_000_000)

    def test_the_server_says_the_same(self):
        server = Server().wait_until_ready()
        body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 24}
        _, answer = server.post("/v1/chat/completions", json.dumps(body).encode())
        self.assertEqual(server.end(), 0)
        report = json.loads(annulus(*self.ASK, "--json"))
        self.assertEqual(answer["choices"][0]["message"]["content"], report["text"])
        self.assertEqual(answer["usage"]["prompt_tokens"], report["prompt_tokens"])
        self.assertEqual(answer["usage"]["completion_tokens"], len(report["tokens"]))

    def test_raw_prompts_have_no_template(self):
        report = json.loads(
            annulus("generate", *MODELS, "--raw", "--prompt", "1, 2, 3, 4,", "--temperature", "0", "--max-tokens", "8", "--json")
        )
        self.assertEqual(report["finish_reason"], "length")
        self.assertEqual(len(report["tokens"]), 8)
        self.assertIn("5", report["text"])
        # Digits and commas; a template would add dozens.
        self.assertLess(report["prompt_tokens"], 16)

    def test_prompts_from_standard_input(self):
        ask = [*self.ASK]
        ask[ask.index("--prompt") + 1] = "-"
        self.assertEqual(annulus(*ask, text="What is the capital of France?"), annulus(*self.ASK))


class Chat(unittest.TestCase):
    def test_a_conversation_over_pipes(self):
        lines = "My name is Ada.\n\nWhat is my name?\n/reset\nWhat is the capital of France?\n/exit\nnever asked\n"
        said = annulus("chat", *MODELS, "--temperature", "0", "--max-tokens", "32", text=lines)
        self.assertIn("Ada", said)
        self.assertIn("Paris", said)

    def test_the_end_of_input_ends_it(self):
        self.assertEqual(annulus("chat", *MODELS, text=""), "")


    def test_an_interrupt_stops_an_answer_and_not_the_conversation(self):
        command = [BINARY, "chat", *MODELS, "--temperature", "0", "--max-tokens", "4000"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as chat:
            chat.stdin.write("Write a very long story about a dragon.\n")
            chat.stdin.flush()
            self.assertTrue(chat.stdout.read(1))
            chat.send_signal(signal.SIGINT)
            # What had been said by then, and a new line.
            self.assertTrue(chat.stdout.readline())
            said, _ = chat.communicate("/reset\nWhat is the capital of France?\n", timeout=120)
        self.assertIn("Paris", said)
        self.assertEqual(chat.returncode, 0)


class Signals(unittest.TestCase):
    def test_interrupts_end_a_server_in_every_phase(self):
        for ready in (False, True):
            server = Server()
            if ready:
                server.wait_until_ready()
            server.process.send_signal(signal.SIGINT)
            began = time.monotonic()
            self.assertEqual(server.process.wait(timeout=30), 0)
            self.assertLess(time.monotonic() - began, 10)
            server.process.stdout.close()
            server.log.close()


class Others(unittest.TestCase):
    def test_doctor(self):
        said = annulus("doctor")
        for word in ("MLX", "0.32.2", "backend", "default model", "Everything is there."):
            self.assertIn(word, said)

    def test_plans(self):
        scenario = '{"scenario":{"cache":{"kind":"full"},"ops":[{"op":"merge","rows":[[1000,1001],[2000]]}]}}\n'
        self.assertIn("offsets", annulus("plan", "replay", "-", text=scenario))
        self.assertIn("merge", annulus("plan", "explain", "-", text=scenario))


if __name__ == "__main__":
    unittest.main()
