"""What a visitor does, done in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser import published

VIEWS = {
    "selected": "/",
    "trending": "/?view=trending",
    "downloads": "/?view=downloads",
    "model": "/?model=Qwen/Qwen3-4B",
    "failed": f"/?model={published.model_ids()[4][0]}",
    "compare": "/?view=compare",
    "coverage": "/?view=coverage",
    "api": "/?view=api",
    "missing": "/?model=no/such-model",
}


def names(page: Any) -> list[str]:
    return [text.strip() for text in page.locator("a.model").all_inner_texts()]


def settled(page: Any) -> None:
    page.locator("main[aria-busy]").wait_for(state="detached")


def test_it_opens_on_selected_with_one_line_per_model(page: Any) -> None:
    page.goto("/")
    shown = names(page)
    assert len(shown) == len(set(shown)) == len(published.rows(2)) + len(published.hostile_rows())
    assert page.locator("nav.tabs [aria-current]").inner_text() == "Selected"
    line = page.locator("tr", has=page.get_by_role("link", name="Qwen/Qwen3-4B", exact=True))
    assert [part in line.inner_text() for part in ("PASS", "4 min", "GB", "reference", "2026-11")] == [True] * 5


def test_typing_filters_by_any_part_of_the_name(page: Any) -> None:
    page.goto("/")
    page.locator("#search").press_sequentially("wEN3-1", delay=20)
    page.wait_for_url("**q=wEN3-1**")
    settled(page)
    assert sorted(names(page)) == ["Qwen/Qwen3-1.7B", "Qwen/Qwen3-14B"]
    page.locator("#search").press("Escape")
    page.wait_for_url(lambda address: "q=" not in address)
    settled(page)
    assert len(names(page)) > 30


def test_nothing_found_says_what_to_do(page: Any) -> None:
    page.goto("/?q=no-such-model-anywhere&result=PASS")
    assert page.locator(".empty").is_visible()
    page.get_by_role("link", name="Clear search and filters").click()
    settled(page)
    assert len(names(page)) > 30
    assert page.locator("#search").input_value() == ""


def test_rankings_keep_the_hubs_order_and_mark_forecasts(page: Any) -> None:
    page.goto("/")
    page.get_by_role("link", name="Trending").click()
    page.wait_for_url("**view=trending**")
    settled(page)
    ranking = [each.model_id for each in published.ranked_and_planned()[0] if each.by == "trending"]
    assert names(page) == ranking
    newcomer = page.locator("tr", has=page.get_by_role("link", name="newcomer/Model-9B"))
    assert "FORECAST" in newcomer.inner_text()
    assert "PASS" not in newcomer.inner_text()
    too_large = page.locator("tr", has=page.get_by_role("link", name="newcomer/Model-400B"))
    assert "Incompatible" in too_large.inner_text()
    gated = page.locator("tr", has_text="EXCLUDED").first
    assert "Left out by choice" in gated.inner_text()


def test_versions_filters_and_sorting_stand_in_the_address_and_a_reload_shows_the_same(page: Any) -> None:
    page.goto("/")
    compiler, _ = published.PAIRS[0]
    page.get_by_label("Compiler").select_option(compiler)
    page.wait_for_url(f"**compiler={compiler}**")
    page.get_by_label("Result").select_option("PASS")
    page.wait_for_url("**result=PASS**")
    page.get_by_role("columnheader", name="Wall time").get_by_role("link").click()
    page.wait_for_url("**sort=wall_s**")
    settled(page)
    shown, address = names(page), page.url
    passed = [each for each in published.rows(0) if each.result == "PASS"]
    seconds = {each.model_id: each.wall_s for each in passed}
    assert sorted(shown) == sorted(seconds)
    assert [seconds[name] for name in shown] == sorted(seconds.values())
    page.reload()
    assert names(page) == shown
    assert page.get_by_label("Compiler").input_value() == compiler
    page.go_back()
    page.wait_for_url(lambda address: "sort=" not in address)
    page.goto(address)
    assert names(page) == shown


def test_a_models_page_gives_run_py_to_copy_and_to_download(page: Any) -> None:
    page.goto("/?q=Qwen3-4B")
    page.get_by_role("link", name="Qwen/Qwen3-4B", exact=True).click()
    page.wait_for_url("**model=Qwen/Qwen3-4B**")
    settled(page)
    page.get_by_role("button", name="Copy run.py").click()
    page.get_by_text("Copied", exact=True).first.wait_for()
    whole = next(row.run_py for row in published.rows(2) if row.model_id == "Qwen/Qwen3-4B")
    assert page.evaluate("navigator.clipboard.readText()") == whole
    with page.expect_download() as download:
        page.get_by_role("link", name="Download", exact=True).click()
    assert download.value.path().read_text() == whole
    text = page.locator("main").inner_text()
    for part in ("What to try next", "Evidence", "History over versions", "Seconds per phase", "Packages", "Software stack", "Badge"):
        assert part in text or part == "What to try next", part
    page.get_by_role("link", name="All models").click()
    page.wait_for_url(lambda address: "model=" not in address)
    assert "q=Qwen3-4B" in page.url


def test_a_failure_comes_with_its_class_and_advice(page: Any) -> None:
    failed = next(row for row in published.rows(2) if row.result == "FAIL")
    assert failed.reason is not None
    page.goto(f"/?model={failed.model_id}")
    card = page.locator(".failure")
    assert [
        part in card.inner_text() for part in (failed.reason.meaning, failed.reason.advice, failed.reason.value, failed.error or "")
    ] == [True] * 4


def test_comparing_two_pairs_counts_and_lists(page: Any) -> None:
    page.goto("/?view=compare")
    before = {row.model_id: row.result for row in published.rows(1)}
    after = {row.model_id: row.result for row in published.rows(2)}
    broken = {name for name in before if before[name] == "PASS" and after.get(name) == "FAIL"}
    assert page.locator(".kinds .broken strong").inner_text() == str(len(broken))
    assert {text.split(" ")[0] for text in page.locator("#broken th a").all_inner_texts()} == broken
    page.get_by_role("link", name="Swap the two pairs").click()
    page.wait_for_url("**before=**")
    settled(page)
    assert {text.split(" ")[0] for text in page.locator("#fixed th a").all_inner_texts()} == broken


def test_coverage_counts_what_the_rows_say(page: Any) -> None:
    page.goto("/?view=coverage")
    passed = sum(row.result == "PASS" for row in [*published.rows(2), *published.hostile_rows()])
    assert page.locator(".hero .legend li").first.inner_text().split() == ["PASS", str(passed)]
    assert page.locator(".histogram").count() == 2


def test_the_keyboard_is_enough(page: Any) -> None:
    page.goto("/")
    page.keyboard.press("/")
    page.keyboard.type("smollm2")
    page.wait_for_url("**q=smollm2**")
    settled(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    second = names(page)[1]
    page.keyboard.press("Enter")
    page.wait_for_url(f"**model={second}**")
    assert page.locator("h1").inner_text() == second


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_phone(page: Any, view: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(VIEWS[view])
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_nothing_jumps_while_it_loads_or_is_typed_in(page: Any) -> None:
    page.add_init_script(
        "window.shift = 0; new PerformanceObserver(list => { for (const e of list.getEntries()) window.shift += e.value; })"
        ".observe({type: 'layout-shift', buffered: true});"
    )
    page.goto("/", wait_until="networkidle")
    page.locator("#search").press_sequentially("qwen", delay=40)
    settled(page)
    assert page.evaluate("window.shift") < 0.02


def test_hostile_rows_are_text_everywhere(page: Any) -> None:
    for address in ("/?q=evil", f"/?model={published.HOSTILE}", "/?view=coverage", "/?view=compare", "/?q=<script>alert(1)</script>"):
        page.goto(address)
        assert page.evaluate("window.hacked") is None, address
        assert page.locator("main script, main img, main b:not(.histogram b), main a[href^='javascript']").count() == 0, address
    page.goto(f"/?model={published.HOSTILE}")
    assert page.locator("h1").inner_text() == published.HOSTILE
    error = page.locator("#error-text").inner_text()
    assert error.startswith("<script>window.hacked = 1</script> **bold** [link](javascript:alert(1)) \N{REPLACEMENT CHARACTER}")
    assert len(error) > 100_000
    page.goto("/?q=rtl")
    assert "\u202e" not in page.content()


def test_the_theme_follows_the_button_and_is_kept(page: Any) -> None:
    page.goto("/")
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.get_by_role("button", name="Switch between light and dark").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    assert dark == page.evaluate("getComputedStyle(document.body).backgroundColor") != light
