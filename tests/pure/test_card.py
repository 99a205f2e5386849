"""The dataset card."""

from __future__ import annotations

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from doesitrun.outcomes import Result
from doesitrun.records import COLUMNS, Row
from doesitrun.store.card import card
from doesitrun.store.workspace import parquet_name


def card_of(*rows: Row) -> str:
    files: dict[str, list[Row]] = {}
    for row in rows:
        files.setdefault(parquet_name(row), []).append(row)
    return card(files)


def front_matter(text: str) -> dict:
    _, yaml_text, _ = text.split("---\n", 2)
    return yaml.safe_load(yaml_text)


def test_each_target_is_a_config_and_the_first_is_the_default() -> None:
    head = front_matter(card_of(Row(target="neuron"), Row(target="cpu")))
    assert head["configs"] == [
        {"config_name": "cpu", "data_files": "data/cpu/*/*.parquet", "default": True},
        {"config_name": "neuron", "data_files": "data/neuron/*/*.parquet"},
    ]
    assert head["license"] == "apache-2.0"
    assert head["pretty_name"] == "Does it run?"


def test_every_column_is_explained() -> None:
    text = card_of(Row(target="cpu"))
    assert all(f"| `{c.name}` | `{c.arrow}` | {c.doc} |" in text for c in COLUMNS)
    assert not any("|" in c.doc for c in COLUMNS)


def test_results_are_counted_per_pair() -> None:
    stack = {
        "target": "cpu",
        "compiler": "inductor",
        "compiler_version": "2.13.0+cpu",
        "library": "transformers",
        "library_version": "5.24.0",
    }
    text = card_of(Row(plan_id="a", result=Result.PASS, **stack), Row(plan_id="b", result=Result.FAIL, **stack))
    assert "| cpu | inductor 2.13.0+cpu | transformers 5.24.0 | 1 | 1 | 0 | 0 | 2 |" in text
    assert 'pd.read_parquet("data/cpu/inductor-2.13.0+cpu/transformers-5.24.0.parquet")' in text


def test_a_dataset_without_rows_says_so() -> None:
    assert "configs" not in front_matter(card({}))
    assert "Nothing yet" in card({})


@settings(deadline=None)
@given(st.text(st.characters(), max_size=30) | st.sampled_from(["a|b", "\n---\n", "$x", "<script>", "`", "![x](y)", "\ud800", "\u202e"]))
def test_text_from_outside_breaks_neither_yaml_nor_markdown(text: str) -> None:
    row = Row(target=text, compiler=text, compiler_version=text, library=text, library_version=text, plan_id="p", result=Result.PASS)
    shown = card_of(row)
    shown.encode()
    plain = card_of(Row(target="t", compiler="t", compiler_version="t", library="t", library_version="t", plan_id="p", result=Result.PASS))
    assert len(shown.splitlines()) == len(plain.splitlines())
    assert len(front_matter(shown)["configs"]) == 1
    (counts,) = [line for line in shown.splitlines() if line.endswith("| 1 | 0 | 0 | 0 | 1 |")]
    assert counts.count("|") == 9
    assert not set("<`![$") & set(counts)
