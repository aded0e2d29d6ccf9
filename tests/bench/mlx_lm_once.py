"""Measures mlx-lm on a CPU: prompt and generated tokens a second, as one line of JSON.

usage: mlx_lm_once.py FOLDER PROMPT_TOKENS GENERATED_TOKENS
"""

import json
import sys

import mlx.core as mx
from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler

mx.set_default_device(mx.cpu)
folder, prompt_tokens, generated_tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
model, tokenizer = load(folder)
# Past any end token: the time of a token is what is measured.
tokenizer._eos_token_ids = set()
prompt = [1000 + (i * 7919) % 40000 for i in range(prompt_tokens)]
for answer in stream_generate(model, tokenizer, prompt, max_tokens=generated_tokens, sampler=make_sampler(temp=0.0)):
    pass
print(json.dumps({"prompt_tps": answer.prompt_tps, "generation_tps": answer.generation_tps}))
