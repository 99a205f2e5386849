"""The Hub tasks that can be tested, one frozen value per file."""

from __future__ import annotations

from doesitrun.records import Task
from doesitrun.tasks.image_text_to_text import IMAGE_TEXT_TO_TEXT
from doesitrun.tasks.text_generation import TEXT_GENERATION

TASKS: dict[str, Task] = {task.name: task for task in (TEXT_GENERATION, IMAGE_TEXT_TO_TEXT)}

__all__ = ["TASKS"]
