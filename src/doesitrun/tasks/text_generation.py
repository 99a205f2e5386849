"""text-generation: a causal language model continues a sentence."""

from doesitrun.records import Task

TEXT_GENERATION = Task(
    name="text-generation",
    auto_class="AutoModelForCausalLM",
    processor_class="AutoTokenizer",
    # Plain text rather than a chat template: templates may put today's date into the prompt, and
    # then no two runs could be compared. An open beginning gives a model much to say in English.
    prompt="The sun was setting over the old harbour, and the fishermen were",
)
