"""doesitrun.toml: what it may say, and what is said of one that is wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.errors import UsageError
from doesitrun.settings import JudgeSettings, Settings, StackSettings, load, parse

toml = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_no_file_gives_the_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert load() == Settings()


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('[stacks.trn]\npython = "/opt/python"\ntarget = "neuron"\n[judge]\nmodel = "a/b"\n[limits]\nmemory_gb = 8\n')
    settings = load(file)
    assert settings.stacks == {"trn": StackSettings("/opt/python", "neuron")}
    assert settings.judge == JudgeSettings("a/b")
    assert settings.limits.memory_gb == 8


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"limit": {}}, "did you mean limits?"),
        ({"limits": {"compile": 3}}, "did you mean compile_s?"),
        ({"stacks": {"a": {"pyhton": "x"}}}, "did you mean python?"),
        ({"stacks": {"a": {}}}, "a stack needs its Python"),
        ({"stacks": {"a": "x"}}, "write [stacks.a] above"),
        ({"stacks": 3}, "must be a table"),
        ({"limits": {"run_s": -1}}, "must be a positive number"),
        ({"limits": {"run_s": True}}, "must be a positive number"),
        ({"limits": {"run_s": float("nan")}}, "must be a positive number"),
        ({"judge": {"model": 3}}, "must be text"),
        ({"zzz": 1}, "it may hold stacks, judge, limits"),
    ],
)
def test_a_wrong_key_or_value_is_refused_with_the_way_out(values: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=r"doesitrun\.toml") as caught:
        parse(values)
    assert said in str(caught.value)


@given(st.dictionaries(st.sampled_from(["stacks", "judge", "limits"]) | st.text(), toml))
def test_any_document_is_read_or_refused(values: dict[str, object]) -> None:
    with contextlib.suppress(UsageError):
        assert set(parse(values).stacks) == set(values.get("stacks", {}))  # type: ignore[call-overload]


@pytest.mark.parametrize("content", [b"[stacks", b"\xff\xfe", b"a = "])
def test_a_file_that_is_no_toml_is_one_sentence(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "doesitrun.toml"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=r"doesitrun\.toml"):
        load(file)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--config"):
        load(tmp_path / "none.toml")
