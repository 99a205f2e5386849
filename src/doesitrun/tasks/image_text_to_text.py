"""image-text-to-text: a vision-language model describes a picture."""

from doesitrun.records import Task

IMAGE_TEXT_TO_TEXT = Task(
    name="image-text-to-text",
    auto_class="AutoModelForImageTextToText",
    processor_class="AutoProcessor",
    prompt="Describe this picture in one sentence.",
    # One picture of fixed size, so that the number of image tokens, and with it every shape, is fixed.
    picture="harbour.png",
)
