"""What each rung of a verdict means, in words; it touches nothing."""

RUNGS = {
    "reference": "the checkpoint is whole and speaks English on the CPU",
    "executed": "compiled graphs ran on the device as planned",
    "numbers": "the logits are as close to float32 as rounding allows",
    "fluent": "a judge model finds the text fluent",
}
