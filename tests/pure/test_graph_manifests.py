"""What names graphs, what is said of them, and that nothing from outside is trusted."""

from __future__ import annotations

import dataclasses
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun import graphs
from doesitrun.errors import UsageError
from doesitrun.graphs import Manifest, Pair
from doesitrun.graphs.manifest import ManifestError, is_safe_name
from doesitrun.records import Plan, Stack
from doesitrun.script import render
from doesitrun.targets import TARGETS
from doesitrun.tasks import TASKS
from tests.pure.golden_plans import PLANS
from tests.pure.graph_cases import ELSEWHERE, MODEL, OLDER, OLDEST, PAIR, PLAN_1, PLAN_2, SHAPE, filled, manifest, neff

PLAN: Plan = PLANS["neuron_1_core"]
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=20), lambda each: st.lists(each, max_size=4), max_leaves=8)
HOSTILE = ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "..", "a/.git/x", "-rf", "a\\b", "C:x", "a\nb", "a\0b", "é", "a/", "~/x"]
HOSTILE += ["x" * 500]


def stack(**versions: str) -> Stack:
    found = {"torch": "2.14.0", "torch_neuronx": "2.14.3.0.1", "neuronx_cc": "2.28.7631.0"} | versions
    return Stack("default", "python", "neuron", "trn2.3xlarge", 4, 2**34, found, "neuronx-cc", found["neuronx_cc"], machine="trn2")


def values(folder: Path) -> dict[str, Any]:
    return json.loads(manifest(filled(folder, [1, 2]), [1, 2]).dumps())


def test_a_manifest_reads_back_as_it_was_written(tmp_path: Path) -> None:
    made = manifest(filled(tmp_path, range(5)), range(5), flags={"NEURON_CC_FLAGS": "-O1"})
    again = Manifest.loads(made.dumps(), made.plan_id, PAIR)
    assert again == dataclasses.replace(made, entries=tuple(sorted(made.entries)))
    assert again.dumps() == made.dumps()


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_elsewhere_is_refused_with_its_manifest(name: str, tmp_path: Path) -> None:
    assert not is_safe_name(name)
    found = values(tmp_path)
    found["entries"][0][0] = name
    with pytest.raises(ManifestError):
        Manifest.loads(json.dumps(found).encode(), PLAN_1, PAIR)


@given(st.text(max_size=60))
def test_a_safe_name_stays_below_its_folder(name: str) -> None:
    if is_safe_name(name):
        path = Path("/cache", name)
        assert path.resolve().is_relative_to("/cache")
        assert str(path) == f"/cache/{name}"
        assert name.isascii()
        assert not any(part.startswith((".", "-")) for part in name.split("/"))


@given(field=st.sampled_from(["format", "plan_id", "pair", "model_id", "flags", "shape", "versions", "entries", "made_at"]), value=JSON)
def test_a_manifest_with_anything_in_a_field_is_whole_or_refused(field: str, value: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = values(tmp_path_factory.mktemp("cache")) | {field: value}
    try:
        read = Manifest.loads(json.dumps(found).encode(), PLAN_1, PAIR)
    except ManifestError:
        return
    assert (read.plan_id, read.pair) == (PLAN_1, PAIR)
    assert all(is_safe_name(entry.name) and entry.size > 0 for entry in read.entries)


@given(cut=st.integers(0, 600))
def test_a_truncated_manifest_is_refused(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = manifest(filled(tmp_path_factory.mktemp("cache"), [1]), [1]).dumps().rstrip()
    if cut < len(data):
        with pytest.raises(ManifestError):
            Manifest.loads(data[:cut], PLAN_1, PAIR)


def test_a_manifest_of_another_pair_or_plan_is_refused(tmp_path: Path) -> None:
    """B5: nothing is inherited across versions, even if somebody copies folders about."""
    data = manifest(filled(tmp_path, [1]), [1]).dumps()
    for plan, pair in ((PLAN_2, PAIR), (PLAN_1, OLDER)):
        with pytest.raises(ManifestError, match="another plan or pair"):
            Manifest.loads(data, plan, pair)


# ---------------------------------------------------------------------------------- pairs
@pytest.mark.parametrize("pair", [PAIR, OLDER, ELSEWHERE])
def test_a_pair_reads_back_from_its_text(pair: Pair) -> None:
    assert Pair.parse(str(pair)) == pair


@pytest.mark.parametrize("text", ["", "a/b", "a/b/c/d", "../b/c", "a/b/..", "a//c", "a/b/c d", "/a/b"])
def test_other_text_is_no_pair(text: str) -> None:
    assert Pair.parse(text) is None


def test_the_compiler_comes_first_then_the_framework_then_the_machine() -> None:
    assert str(graphs.pair_of(stack())) == "neuronx-cc-2.28.7631.0/torch-neuronx-2.14.3.0.1/neuron-trn2"


@pytest.mark.parametrize("change", [{"neuronx_cc": "2.29.0"}, {"torch_neuronx": "2.14.4"}, {"torch_neuronx": "../.."}])
def test_another_version_is_another_pair(change: dict[str, str]) -> None:
    """B5 and B9: results of two releases are compared; their graphs are never mixed."""
    pair = graphs.pair_of(stack(**change))
    assert pair != graphs.pair_of(stack())
    assert Pair.parse(str(pair)) == pair


def test_the_nearest_pair_is_of_the_same_target_and_the_closest_version() -> None:
    assert graphs.nearest(PAIR, [OLDEST, OLDER, ELSEWHERE]) == OLDER
    assert graphs.nearest(PAIR, [ELSEWHERE]) == ELSEWHERE
    assert graphs.nearest(PAIR, []) is None


def test_processors_that_can_do_different_things_are_different_machines() -> None:
    facts = {"distributions": {"torch": "2.13.0"}, "cpu_count": 2, "architecture": "x86_64"}
    machines = []
    for flags in (["avx2", "fma"], ["avx2", "fma", "avx512f"], ["fma", "avx2", "cpuid_fault"]):
        found = TARGETS["cpu"].detect({**facts, "cpu_flags": flags})
        assert found is not None
        machines.append(found.machine)
    assert machines[0] == machines[2] != machines[1]
    assert machines[1].startswith("x86_64-avx512-")


# ---------------------------------------------------------------------------------- why graphs were compiled
def why(here: list[Manifest] = [], others: dict[Pair, list[Manifest]] = {}, flags: dict[str, str] = {}, **shape: str) -> str:  # noqa: B006
    return graphs.why_missed(PLAN, PAIR, flags, {**SHAPE, **shape}, here, others)


def test_a_flag_a_version_or_a_shape_is_named_as_the_cause(tmp_path: Path) -> None:
    """B2, and the reasons of a miss."""
    folder = filled(tmp_path, [1])
    own = manifest(folder, [1], PLAN.plan_id, flags={"NEURON_CC_FLAGS": "-O1"})
    assert why([own]) == "Flag: NEURON_CC_FLAGS is not set here and '-O1' there."
    assert why([manifest(folder, [1], PLAN.plan_id)], prompt_tokens="17") == "Shape: prompt tokens 17 here and 16 there."
    assert why([manifest(folder, [1], "plan-of-4-cores", shape={**SHAPE, "cores": "4"})]) == "Shape: cores 1 here and 4 there."
    told = why(others={OLDER: [manifest(folder, [1], PLAN.plan_id, OLDER)]})
    assert told == "Version: the compiler is neuronx-cc-2.28.7631.0 here and neuronx-cc-2.27.5334.0 there."
    assert why() == f"The store has no graphs of {MODEL}."


def test_graphs_of_other_flags_are_not_claimed(tmp_path: Path) -> None:
    """B2: the compiler's flags come from the environment, and a graph of other flags is no hit."""
    made = manifest(filled(tmp_path, [1]), [1], flags={"NEURON_CC_FLAGS": "--auto-cast=all"})
    fit, refused = graphs.usable([made], {})
    assert fit == []
    assert "NEURON_CC_FLAGS is not set here and '--auto-cast=all' there" in refused[0]
    assert graphs.usable([made], {"NEURON_CC_FLAGS": "--auto-cast=all"}) == ([made], [])
    watched = TARGETS["neuron"].GRAPHS.flags_of({"NEURON_CC_FLAGS": "-O1", "HF_TOKEN": "secret"})
    assert watched == {"NEURON_CC_FLAGS": "-O1"}


@pytest.mark.parametrize(
    ("hits", "misses", "told"),
    [
        (2, 0, "All 2 graphs came from the cache."),
        (1, 0, "The only graph came from the cache."),
        (1, 2, "1 of 3 graphs came from the cache."),
        (0, 2, "None of the 2 graphs came from the cache."),
        (0, 0, "No graph was asked of the cache."),
    ],
)
def test_the_proof_is_one_sentence(hits: int, misses: int, told: str) -> None:
    assert graphs.sentence(hits, misses) == told


# ---------------------------------------------------------------------------------- the line to copy
def test_the_printed_line_names_the_very_entries(tmp_path: Path) -> None:
    found = {PAIR: [manifest(filled(tmp_path, [1, 2, 3]), [1, 2])]}
    made = graphs.command("hf://buckets/me/graphs", MODEL, PAIR, {}, found)
    uri = f"hf://buckets/me/graphs/{PAIR}/entries"
    names = sorted([neff(1), neff(2)])
    assert shlex.split(made.copy) == ["hf", "buckets", "sync", uri, "./neff_cache", "--include", names[0], "--include", names[1]]
    assert made.lines[1] == 'export TORCH_NEURONX_NEFF_CACHE_DIR="$PWD/neff_cache"'
    assert (made.entries, made.size) == (2, 200)


def test_a_line_for_s3_leaves_everything_else_out(tmp_path: Path) -> None:
    found = {PAIR: [manifest(filled(tmp_path, [1]), [1])]}
    made = graphs.command("s3://bucket/graphs", MODEL, PAIR, {}, found)
    words = shlex.split(made.copy)
    assert words == ["aws", "s3", "sync", f"s3://bucket/graphs/{PAIR}/entries", "./neff_cache", "--exclude", "*", "--include", neff(1)]


def test_many_entries_are_copied_with_all_that_the_pair_has(tmp_path: Path) -> None:
    made = graphs.command("s3://b/g", MODEL, PAIR, {}, {PAIR: [manifest(filled(tmp_path, range(40)), range(40))]})
    assert made.copy == f"aws s3 sync s3://b/g/{PAIR}/entries ./neff_cache"


def test_other_versions_are_refused_and_the_nearest_is_named(tmp_path: Path) -> None:
    """B4: another compiler's artefact fails with an opaque status on the device, so it is not offered."""
    folder = filled(tmp_path, [1])
    found = {OLDEST: [manifest(folder, [1], pair=OLDEST)], OLDER: [manifest(folder, [1], pair=OLDER)]}
    with pytest.raises(UsageError, match=r"neuronx-cc-2\.28\.7631\.0 here and neuronx-cc-2\.27\.5334\.0 there.*nearest.*2\.27\.5334\.0"):
        graphs.command("s3://b/g", MODEL, PAIR, {}, found)
    with pytest.raises(UsageError, match="no graphs of org/other"):
        graphs.command("s3://b/g", "org/other", PAIR, {}, found)


def test_other_flags_are_refused_too(tmp_path: Path) -> None:
    found = {PAIR: [manifest(filled(tmp_path, [1]), [1], flags={"NEURON_CC_FLAGS": "-O1"})]}
    with pytest.raises(UsageError, match="NEURON_CC_FLAGS is not set here and '-O1' there"):
        graphs.command("s3://b/g", MODEL, PAIR, {}, found)


@pytest.mark.parametrize(
    "url",
    ["", " ", "s3://key:secret@bucket/x", "s3://b/../x", "s3://b/x y", "s3://b/x;rm -rf ~", "s3://b/$(x)", "hf://models/a/b", "hf://buckets/a",
     "nosuch://b/x", "s3://b/x?y", "s3://b/x\n", "hf://buckets/a/b c"],
)  # fmt: skip
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        graphs.open_store(url)


@given(st.text(max_size=40))
def test_whatever_address_is_taken_makes_a_line_that_a_shell_takes_apart_again(text: str) -> None:
    for url in (f"s3://bucket/{text}", f"hf://buckets/me/graphs/{text}"):
        try:
            made = graphs.copy_command(graphs.open_store(url).url, PAIR)
        except UsageError:
            continue
        words = shlex.split(made.copy)
        assert words[-1] == "./neff_cache"
        assert words[-2].endswith(f"{PAIR}/entries")
        assert all(line.isprintable() and line.isascii() for line in made.lines)


def test_run_py_carries_the_line_in_its_header() -> None:
    lines = graphs.copy_command("hf://buckets/me/graphs", PAIR).lines
    text = render(PLAN, TASKS[PLAN.task], {}, lines)
    compile(text, "run.py", "exec")
    head = text.partition('"""')[0]
    assert f"# hf buckets sync hf://buckets/me/graphs/{PAIR}/entries ./neff_cache\n" in head
    assert text.replace("".join(f"# {line}\n" for line in lines), "") == render(PLAN, TASKS[PLAN.task], {})


@pytest.mark.parametrize("line", ["a\nimport os", "a\rb", "a\x0cb", "a\u2028b"])
def test_a_line_that_would_leave_its_comment_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="comment"):
        render(PLAN, TASKS[PLAN.task], {}, [line])
