"""Twenty prompts of different kinds."""

PROMPTS = [
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain how a bicycle stays upright, to a child of six.",
    "def fibonacci(n):\n    # complete this function\n",
    "List five fruits that are red.",
    "Translate into German: The weather is nice today.",
    "What is 17 times 23? Show your work.",
    "Once upon a time, in a village by the river,",
    "Summarise in one sentence: Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Wer hat die Relativitätstheorie entwickelt?",
    "日本の首都はどこですか？",
    "Give me a JSON object with the keys name and age.",
    "Why is the sky blue? 🌤️",
    "    \n\n  indented\ttext \n with   odd  spacing",
    "Continue the sequence: 2, 4, 8, 16,",
    "Write a short formal letter that declines an invitation.",
    "Is a tomato a fruit or a vegetable? Answer with one word.",
    "SELECT name FROM users WHERE age > 30 -- explain this query",
    "What are the advantages and disadvantages of solar power?",
    "Ok",
]
