"""Whether a run's graphs came from the cache, and if not, why; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from doesitrun.graphs.manifest import Manifest
from doesitrun.graphs.pairs import Pair, difference, nearest
from doesitrun.records import Plan


def shape_of(plan: Plan, prompt_tokens: int | None = None) -> dict[str, str]:
    """What graphs are compiled for besides the model and the versions."""
    shape: dict[str, object] = {"cores": plan.cores, "tp": plan.tp, "ep": plan.ep, "dtype": plan.dtype.value}
    shape |= {"new_tokens": plan.new_tokens, "revision": plan.revision} | ({"prompt_tokens": prompt_tokens} if prompt_tokens else {})
    return {name: str(value) for name, value in shape.items()}


def flag_difference(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Which compiler flags differ, as a clause; empty where none does."""
    names = sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))
    return " and ".join(f"{name} is {_said(here.get(name))} here and {_said(there.get(name))} there" for name in names)


def _said(value: str | None) -> str:
    return "not set" if value is None else repr(value)


def usable(manifests: Iterable[Manifest], flags: Mapping[str, str]) -> tuple[list[Manifest], list[str]]:
    """Manifests whose graphs were compiled with these flags, and why the others are of no use, as sentences."""
    fit, refused = [], []
    for manifest in manifests:
        clause = flag_difference(flags, manifest.flags)
        if clause:
            refused.append(f"The graphs of {manifest.plan_id} were compiled with other flags: {clause}.")
        else:
            fit.append(manifest)
    return fit, refused


def sentence(hits: int, misses: int) -> str:
    """The proof in one sentence."""
    total = hits + misses
    if not total:
        return "No graph was asked of the cache."
    if not misses:
        return f"All {total} graphs came from the cache." if total > 1 else "The only graph came from the cache."
    if not hits:
        return f"None of the {total} graphs came from the cache." if total > 1 else "The only graph was compiled, not found in the cache."
    return f"{hits} of {total} graphs came from the cache."


def why_missed(
    plan: Plan,
    pair: Pair,
    flags: Mapping[str, str],
    shape: Mapping[str, str],
    here: Sequence[Manifest],
    others: Mapping[Pair, Sequence[Manifest]],
) -> str:
    """Why graphs were compiled although a store was asked: flag, version or shape, in one sentence.

    `here` are the store's manifests of this pair, `others` those of its other pairs.
    """
    same_model = [manifest for manifest in here if manifest.model_id == plan.model_id]
    same_plan = next((manifest for manifest in same_model if manifest.plan_id == plan.plan_id), None)
    if same_plan is not None:
        flag = flag_difference(flags, same_plan.flags)
        if flag:
            return f"Flag: {flag}."
        return _of_shape(shape, same_plan.shape) or "The store has this plan: what it traced must differ."
    if same_model:
        closest = min(same_model, key=lambda manifest: (_unlike(shape, manifest.shape), manifest.plan_id))
        return _of_shape(shape, closest.shape) or f"Shape: the store has {closest.plan_id} alone."
    offering = [other for other, manifests in others.items() if any(manifest.model_id == plan.model_id for manifest in manifests)]
    other = nearest(pair, offering)
    if other is not None:
        return f"Version: {difference(pair, other)}."
    return f"The store has no graphs of {plan.model_id}."


def _of_shape(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    names = [name for name in here if name in there and here[name] != there[name]]
    told = " and ".join(f"{name.replace('_', ' ')} {here[name]} here and {there[name]} there" for name in names)
    return f"Shape: {told}." if told else ""


def _unlike(here: Mapping[str, str], there: Mapping[str, str]) -> int:
    return sum(here.get(name) != there.get(name) for name in here.keys() | there.keys())
