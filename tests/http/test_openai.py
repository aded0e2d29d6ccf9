"""The official client against a real model."""

import json
import math
import unittest

import openai

from serving import Server

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


class OpenAI(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server().wait_until_ready()
        cls.client = cls.server.client()
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        assert cls.server.end() == 0

    def chat(self, **more):
        fields = {"model": self.model, "messages": QUESTION, "temperature": 0, "max_tokens": 24, **more}
        return self.client.chat.completions.create(**fields)

    def complete(self, prompt, **more):
        fields = {"model": self.model, "prompt": prompt, "temperature": 0, "max_tokens": 8, **more}
        return self.client.completions.create(**fields)

    def refused(self, kind, param, code, **more):
        with self.assertRaises(kind) as caught:
            self.chat(**more)
        error = caught.exception
        self.assertEqual((error.param, error.code), (param, code), error)
        # A message and not the whole body: the client found the error where it looks for it.
        self.assertNotIn("{", error.body["message"])

    # What it is for

    def test_answers_whole(self):
        answer = self.chat()
        self.assertIn("Paris", answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.model, self.model)
        usage = answer.usage
        self.assertEqual(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)
        self.assertGreater(usage.prompt_tokens, 5)

    def test_answers_streamed_and_says_the_same(self):
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        whole = self.chat()
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(len({chunk.id for chunk in chunks}), 1)
        roles = [choice.delta.role for chunk in chunks for choice in chunk.choices]
        self.assertEqual(roles[0], "assistant")
        self.assertEqual(set(roles[1:]), {None})
        reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices]
        self.assertEqual([reason for reason in reasons if reason], ["stop"])
        # As it comes, and not in one piece at the end.
        self.assertGreater(len(chunks), 5)
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage, whole.usage)
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))

    def test_the_clients_own_stream_helper_puts_it_together(self):
        with self.client.chat.completions.stream(model=self.model, messages=QUESTION, temperature=0, max_tokens=24) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.content, self.chat().choices[0].message.content)

    def test_models(self):
        models = self.client.models.list().data
        self.assertEqual([model.object for model in models], ["model"])
        self.assertEqual(self.client.models.retrieve(self.model), models[0])
        with self.assertRaises(openai.NotFoundError) as caught:
            self.client.models.retrieve("nonsense")
        self.assertEqual(caught.exception.code, "model_not_found")

    # Errors

    def test_errors_become_exceptions_that_name_the_field(self):
        bad = openai.BadRequestError
        self.refused(openai.NotFoundError, "model", "model_not_found", model="nonsense")
        self.refused(bad, "temperature", "invalid_value", temperature=3)
        self.refused(bad, "messages", "invalid_value", messages=[])
        self.refused(bad, "messages[0].role", "invalid_value", messages=[{"role": "wizard", "content": "hi"}])
        self.refused(bad, "max_tokens", "invalid_value", max_tokens=0)
        self.refused(bad, "n", "unsupported_parameter", n=2)
        self.refused(bad, "messages", "context_length_exceeded", messages=[{"role": "user", "content": "word " * 9000}])

    # Fields

    def test_max_tokens_cut_the_answer_off(self):
        answer = self.chat(max_tokens=2)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 2)
        self.assertEqual(self.chat(max_tokens=9, max_completion_tokens=2).usage, answer.usage)

    def test_stop_strings_cut_the_text_before_them(self):
        whole = self.complete("1, 2, 3, 4,", max_tokens=16).choices[0].text
        self.assertIn(" 7", whole)
        # Across tokens, and the earliest of several.
        for stop in [", 7", [" 8", ", 7", "never"]]:
            answer = self.complete("1, 2, 3, 4,", max_tokens=16, stop=stop).choices[0]
            self.assertEqual(answer.text, whole[: whole.index(", 7")])
            self.assertEqual(answer.finish_reason, "stop")

    def test_seeds(self):
        def say(**more):
            answer = self.chat(messages=[{"role": "user", "content": "Tell me a story."}], temperature=1, **more)
            return answer.choices[0].message.content

        self.assertEqual(say(seed=5), say(seed=5))
        self.assertNotEqual(say(seed=5), say(seed=6))
        self.assertNotEqual(say(), say())

    def test_logprobs_of_a_chat(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        choice = answer.choices[0]
        entries = choice.logprobs.content
        self.assertEqual("".join(entry.token for entry in entries), choice.message.content)
        self.assertEqual(b"".join(bytes(entry.bytes) for entry in entries).decode(), choice.message.content)
        for entry in entries:
            self.assertEqual(len(entry.top_logprobs), 3)
            logprobs = [top.logprob for top in entry.top_logprobs]
            self.assertEqual(logprobs, sorted(logprobs, reverse=True))
            self.assertLessEqual(sum(map(math.exp, logprobs)), 1 + 1e-4)
            # Greedy: the chosen token is the most likely one.
            self.assertEqual((entry.token, entry.logprob), (entry.top_logprobs[0].token, logprobs[0]))
        streamed = [
            entry
            for chunk in self.chat(logprobs=True, top_logprobs=3, stream=True)
            for choice in chunk.choices
            if choice.logprobs
            for entry in choice.logprobs.content
        ]
        self.assertEqual(streamed, entries)

    # Completions

    def test_completions(self):
        answer = self.complete("The capital of France is")
        self.assertIn("Paris", answer.choices[0].text)
        streamed = self.complete("The capital of France is", stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in streamed), answer.choices[0].text)

    def test_several_prompts_give_choices_in_order(self):
        prompts = ["The capital of France is", "1, 2, 3, 4,"]
        together = [choice.text for choice in self.complete(prompts).choices]
        self.assertEqual(together, [self.complete(prompt).choices[0].text for prompt in prompts])

    def test_prompts_as_ids(self):
        # Ids below 256 are no bytes in this vocabulary; which text they are does not matter, but that it is the same.
        ids = [504, 3575, 282, 4649, 314]
        self.assertEqual(
            [choice.text for choice in self.complete([ids, ids]).choices],
            [self.complete(ids).choices[0].text] * 2,
        )

    def test_scores_as_evaluations_ask_for_them(self):
        # lm-eval's request: the prompt's entries and one token more, the first without a score.
        answer = self.complete([[504, 3575, 282, 4649, 314]], max_tokens=1, echo=True, logprobs=1, seed=1234)
        logprobs = answer.choices[0].logprobs
        for entries in (logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset):
            self.assertEqual(len(entries), 6)
        self.assertIsNone(logprobs.token_logprobs[0])
        self.assertIsNone(logprobs.top_logprobs[0])
        for logprob, top in zip(logprobs.token_logprobs[1:], logprobs.top_logprobs[1:]):
            self.assertLessEqual(logprob, 0)
            self.assertLessEqual(logprob, max(top.values()))
            self.assertIn(logprob, top.values())
        # The score of a token in a prompt is that of the same token in an answer.
        self.assertEqual("".join(logprobs.tokens), answer.choices[0].text)
        again = self.complete(answer.choices[0].text, max_tokens=0, echo=True, logprobs=1)
        self.assertAlmostEqual(again.choices[0].logprobs.token_logprobs[-1], logprobs.token_logprobs[-1], places=3)
        self.assertEqual(again.usage.completion_tokens, 0)

    # Clients that go

    def test_a_client_that_leaves_a_stream_frees_its_place(self):
        # Counting goes on for ever.
        stream = self.complete("1, 2, 3, 4, 5, 6, 7, 8,", max_tokens=4000, stream=True)
        for _ in range(3):
            next(stream)
        self.assertEqual(self.server.get("/health")[1]["running"], 1)
        stream.close()
        # Behind four thousand tokens this would take minutes.
        impatient = self.client.with_options(timeout=20)
        answer = impatient.completions.create(model=self.model, prompt="1, 2, 3, 4,", max_tokens=1, temperature=0)
        self.assertEqual(answer.usage.completion_tokens, 1)

    def test_a_client_that_gives_up_waiting_frees_its_place(self):
        impatient = self.client.with_options(timeout=1)
        with self.assertRaises(openai.APITimeoutError):
            impatient.completions.create(model=self.model, prompt="1, 2, 3, 4, 5, 6, 7, 8,", max_tokens=4000, temperature=0)
        answer = self.client.with_options(timeout=20).completions.create(
            model=self.model, prompt="1, 2, 3, 4,", max_tokens=1, temperature=0
        )
        self.assertEqual(answer.usage.completion_tokens, 1)


class FullQueue(unittest.TestCase):
    def test_the_client_is_told_to_come_back(self):
        server = Server("--max-queue", "0").wait_until_ready()
        client = server.client()
        model = client.models.list().data[0].id

        def count(**more):
            return client.completions.create(model=model, prompt="1, 2, 3, 4, 5, 6, 7, 8,", temperature=0, **more)

        stream = count(max_tokens=4000, stream=True)
        next(stream)
        with self.assertRaises(openai.RateLimitError) as caught:
            count(max_tokens=1)
        self.assertEqual(caught.exception.code, "queue_full")
        self.assertGreaterEqual(int(caught.exception.response.headers["retry-after"]), 1)
        stream.close()
        # The client's own patience: it waits as long as it was told to.
        patient = client.with_options(max_retries=10)
        answer = patient.completions.create(model=model, prompt="1, 2, 3, 4,", max_tokens=1, temperature=0)
        self.assertEqual(answer.usage.completion_tokens, 1)
        self.assertEqual(server.end(), 0)


class Fault(unittest.TestCase):
    """BR-48: the model's thread dies; requests end with an error, health says so, and the process lives."""

    def test_a_dead_thread_is_an_error_and_no_silence(self):
        server = Server("--fault-after", "5").wait_until_ready()
        client = server.client()
        fields = {"model": client.models.list().data[0].id, "messages": QUESTION, "temperature": 0, "max_tokens": 24}
        with self.assertRaises(openai.APIError) as caught:
            for _ in client.chat.completions.create(stream=True, **fields):
                pass
        self.assertEqual(caught.exception.code, "model_failed")
        status, health = server.get("/health")
        self.assertEqual((status, health["status"]), (503, "failed"))
        self.assertEqual(server.get("/health/live")[0], 200)
        with self.assertRaises(openai.InternalServerError) as caught:
            client.chat.completions.create(**fields)
        self.assertEqual(caught.exception.code, "model_failed")
        self.assertEqual(server.end(), 0)


if __name__ == "__main__":
    unittest.main()
