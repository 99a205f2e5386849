"""One line of a selection: a model, whether it is run, and why."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from doesitrun.outcomes import Reason, Stage


@dataclass(frozen=True)
class Selected:
    """A ranked or pinned model: chosen with its place, or excluded with its reason. A line of selection/DATE/TARGET.jsonl."""

    model_id: str
    chosen: bool
    target: str
    device: str
    task: str
    detail: str
    """One sentence: why chosen, or why not."""
    place: int | None = None
    """Order of the chosen ones, from 1; None for excluded ones."""
    reason: Reason | None = None
    stage: Stage | None = None
    """Where an excluded one was sorted out: select or plan."""
    revision: str | None = None
    """Commit that was ranked and planned."""
    cores: int | None = None
    est_core_hours: float | None = None
    """An estimate, for order and for the expected end."""
    base_model: str | None = None
    """Model that it was made from; for what another one covers, that one."""
    pinned: bool = False
    link: str | None = None
    """Of a decision taken by hand."""
    trending_rank: int | None = None
    downloads_rank: int | None = None
    architecture: str | None = None
    model_type: str | None = None
    parameters: int | None = None
    weights_bytes: int | None = None
    ranked_on: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The line as JSON values."""
        return {name: getattr(value, "value", value) for name, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """The line that `to_json` gave; keys of later versions are passed over. Raises ValueError, TypeError or KeyError."""
        known = {field.name: values[field.name] for field in dataclasses.fields(cls) if values.get(field.name) is not None}
        for name, enum in (("reason", Reason), ("stage", Stage)):
            if name in known:
                known[name] = enum(known[name])
        return cls(**known)
