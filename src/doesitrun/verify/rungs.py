"""What each rung of a verdict means, in words; it touches nothing."""

RUNGS = {
    "reference": "the checkpoint is whole and speaks English on the CPU",
    "executed": "compiled graphs ran on the device as planned",
    "numbers": "the logits are as close to float32 as rounding allows",
    "fluent": "a judge model finds the text fluent",
}
PROBES = {
    "second_prompt": "another prompt, and the first one again after it, are right, too",
    "padded_batch": "a batch with padding on the left gives what each prompt gives alone",
    "long_position": "positions beyond the window and the first rope length are right, too",
    "long_text": "256 tokens are right, too",
}
"""Rungs of a thorough test."""
