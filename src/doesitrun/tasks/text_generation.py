"""text-generation: a causal language model continues a sentence."""

from doesitrun.records import Task

TEXT_GENERATION = Task(
    name="text-generation",
    auto_class="AutoModelForCausalLM",
    processor_class="AutoTokenizer",
    # Plain text rather than a chat template: templates may put today's date into the prompt, and
    # then no two runs could be compared. A tale's beginning leaves a model few close calls between two tokens, so
    # that right runs agree on more of them, and much to say in English.
    prompt="Once upon a time, in a small village by the sea, there lived an old fisherman who",
)
