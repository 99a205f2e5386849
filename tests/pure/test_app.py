"""Words, badges and pictures of the web app, and that no text from outside becomes HTML."""

from __future__ import annotations

import dataclasses
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from functools import partial
from html.parser import HTMLParser
from typing import Any, cast
from urllib.parse import parse_qs

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from doesitrun.app import badge, charts, words
from doesitrun.catalog import Choices, Found, Line, Query, Tally

LINE = Line(
    "org/Model",
    "text-generation",
    "LlamaForCausalLM",
    "PASS",
    target="neuron",
    device="trn2",
    cores=4,
    wall_s=75,
    compiler="neuronx-cc",
    compiler_version="2.28",
    library="transformers",
    library_version="5.24.0",
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, words.NOTHING), (4.25, "4.2 s"), (59, "59 s"), (60, "1 min 00 s"), (3599.6, "1 h 00 min"), (7260, "2 h 01 min")],
)
def test_seconds_are_shown_with_units(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, words.NOTHING), (999, "999"), (1200, "1.2k"), (2_000_000, "2M"), (150_000_000, "150M"), (3_100_000_000, "3.1B")],
)
def test_large_numbers_are_shown_in_three_digits(value: int | None, text: str) -> None:
    assert words.compact(value) == text


@given(st.dictionaries(st.sampled_from(["q", "model", "target"]), st.text(min_size=1)), st.text(min_size=1))
def test_an_address_carries_any_text_and_loses_the_page_number(parameters: dict[str, str], task: str) -> None:
    read = parse_qs(words.address({**parameters, "offset": "100"}, task=task)[1:], keep_blank_values=True, strict_parsing=True)
    assert read == {name: [value.encode("utf-8", "replace").decode()] for name, value in {**parameters, "task": task}.items()}


def test_a_change_to_nothing_takes_a_parameter_away() -> None:
    assert words.address({"q": "x", "desc": "1"}, desc=False, q=None) == "?"


@given(st.text())
def test_what_is_shown_neither_hides_nor_turns_text(text: str) -> None:
    shown = words.shown(text)
    assert len(shown) == len(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", shown)


def test_a_badge_never_shows_a_forecast_as_a_result() -> None:
    assert badge.message(LINE) == "pass on 4 cores"
    assert badge.message(dataclasses.replace(LINE, result="", why="Forecast: 1 core")) == "not tested"


@given(st.text(), st.text(), st.text())
def test_a_badge_of_any_text_is_well_formed(device: str, version: str, result: str) -> None:
    svg = badge.svg(dataclasses.replace(LINE, device=device, compiler_version=version, result=result))
    assert [each.tag.rpartition("}")[2] for each in ET.fromstring(svg)] == ["title", "clipPath", "g", "g"]


@given(st.lists(st.floats(0, 1e6), max_size=60).map(sorted))
@example([5e-324])
def test_a_histogram_counts_every_value_once(values: list[float]) -> None:
    for edges in (charts.WALL_EDGES, charts.even_edges(values)):
        bins = charts.histogram(values, edges)
        assert sum(each.lines for each in bins) == len(values)
        assert all(each.percent <= 100 for each in bins)
        for each in bins:
            assert each.lines == sum(each.low <= value < each.high for value in values)


def test_bars_share_one_scale() -> None:
    first, second = charts.bars([Tally("a", 3, 1, 0, 0), Tally("b", 0, 0, 2, 0)])
    assert [part.percent for part in first.parts] == [75, 25]
    assert [part.percent for part in second.parts] == [50]
    assert (first.passed_percent, second.passed_percent) == (75, None)


# ---------------------------------------------------------------------------------- nothing becomes HTML
class _Tags(HTMLParser):
    """The tags of a page, with their attributes' names, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, Any]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


class _Data:
    """As much of a catalog as the frame of a page shows."""

    version, notices, row_count, loaded_at, default_target = 1, (), 1, datetime(2026, 1, 1, tzinfo=UTC), "neuron"


def _drawn(line: Line, text: str) -> _Tags:
    pages = pytest.importorskip("doesitrun.app.pages", reason="SKIPPED: Jinja is not installed (pip install 'doesitrun[serve]')")
    values = {
        "query": Query(text=text),
        "found": Found((line,), 1, {line.result: 1}),
        "choices": Choices((), (), (), (line.architecture,), (), (), (), (), ()),
        "ranked": False,
        "first": 1,
        "to": 1,
        "previous": None,
        "next": None,
        "last": 0,
        "filtered": True,
        "parameters": pages._Given({"q": text}),
        "screen": "list",
        "title": text,
        "data": _Data,
        "base": "http://x",
        "wrapper": "document.html",
        "row": partial(pages.Pages(cast("Any", None))._row, {}, False, True),
    }
    parser = _Tags()
    parser.feed(pages.environment().get_template("list.html").render(values))
    return parser


@given(
    st.one_of(
        st.text(min_size=1),
        st.sampled_from(["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "'><b>", "{{ 7 * 7 }}", "&lt;b&gt;"]),
    )
)
def test_no_text_from_outside_becomes_html(text: str) -> None:
    plain = _drawn(dataclasses.replace(LINE, model_id="x/y", result="FAIL", why="x", architecture="x"), "x").tags
    hostile = dataclasses.replace(LINE, model_id=f"x/{text}", result="FAIL", why=f"x{text}", architecture=f"x{text}")
    assert _drawn(hostile, f"x{text}").tags == plain


def test_a_template_shows_text_as_it_is() -> None:
    assert "x/<script>{{ 7 * 7 }}**b**" in _drawn(dataclasses.replace(LINE, model_id="x/<script>{{ 7 * 7 }}**b**"), "x").text
