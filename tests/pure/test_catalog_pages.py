"""What a model's page tells: the row whole, its history, its commands and what to try next."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from doesitrun.catalog import Catalog, Page, Query, as_json, find, open_data, page, script_of
from doesitrun.catalog.words import graphs_command, pip_command
from doesitrun.errors import ModelNotFoundError
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import Row
from tests.pure.published import NEW, OLD, forecast, plan, publish, rank, refused, row

PASS, FAIL, EXCLUDED, INCONCLUSIVE = Result.PASS, Result.FAIL, Result.EXCLUDED, Result.INCONCLUSIVE
MODEL = "Qwen/Qwen3-0.6B"
V = [("2.25.0.0", "5.21.0"), ("2.26.0.0", "5.22.0"), OLD, NEW]
HOSTILE = "<script>alert(1)</script> **b** \0 \u202egnirts \x1b[31m " + "x" * 100_000


def catalog(folder: Path, *rows: Row) -> Catalog:
    return open_data(publish(folder, rows)).current()


def sentences(found: Page) -> list[str]:
    return [suggestion.sentence for suggestion in found.suggestions]


def test_a_page_carries_the_row_whole(tmp_path: Path) -> None:
    whole = row(
        run_py="print()\n",
        output_text=HOSTILE,
        prompt="Once",
        logit_ratio=1.02,
        cpu_match="17/32",
        match_tokens=17,
        english="fluent",
        load_s=1.5,
        compile_s=20.0,
        run_s=21.0,
        warm_run_s=1.0,
        hbm_peak_gb=1.7,
        hbm_capacity_gb=25.8,
        rank_weights_bytes=12 * 10**8,
        graphs=2,
        compiled=True,
        output_tokens=[1, 2],
        torch="2.13.0",
    )
    found = page(catalog(tmp_path, whole, row("other/model", run_py="no")), MODEL)
    evidence = found.evidence
    assert evidence is not None
    assert (found.run_py, evidence.output_text, evidence.prompt) == ("print()\n", HOSTILE, "Once")
    assert evidence.rungs[2] == ("numbers", "the logits are as close to float32 as rounding allows")
    assert (evidence.cpu_match, evidence.logit_ratio, evidence.english, evidence.graphs) == ("17/32", 1.02, "fluent", 2)
    assert evidence.seconds == (("load", 1.5), ("compile", 20.0), ("first pass", 21.0), ("second pass", 1.0))
    assert evidence.memory_gb == (("peak", 1.7), ("weights", 1.2), ("capacity", 25.8))
    assert (found.failure, found.suggestions) == (None, ())
    assert found.values["output_tokens"] == [1, 2]
    assert script_of(found) == "print()\n"
    json.dumps(as_json(found))


@pytest.mark.parametrize("result", [FAIL, INCONCLUSIVE])
def test_the_error_survives_to_the_page_whole(tmp_path: Path, result: Result) -> None:
    """Whatever is in it, and however long it is: nothing between the run and the reader may shorten or change it."""
    error = f"RuntimeError: {HOSTILE}\nAt the end: the cause."
    failed = row(result=result, reason=Reason.COMPILE_ERROR if result is FAIL else Reason.NETWORK, error=error, stage=Stage.COMPILE)
    found = page(catalog(tmp_path, failed), MODEL)
    failure = found.failure
    assert failure is not None
    assert failure.text == error
    assert (failure.stage, failure.fault) == ("compile", "model" if result is FAIL else "harness")
    assert failure.advice == failed.reason.advice
    assert as_json(found)["failure"]["text"] == error


def test_an_exclusion_survives_whole_and_a_list_shows_its_beginning(tmp_path: Path) -> None:
    excluded = row(result=EXCLUDED, reason=None, exclusion=HOSTILE)
    data = catalog(tmp_path, excluded)
    failure = page(data, MODEL).failure
    assert failure is not None
    assert failure.text == HOSTILE
    assert find(data, Query()).lines[0].why == HOSTILE[:300]


def test_rows_of_a_large_file_are_found_again(tmp_path: Path) -> None:
    data = catalog(tmp_path, *(row(f"m/{n:05}", run_py=f"# {n}\n") for n in range(2500)), row("m/00007", INCONCLUSIVE, run_py="#?"))
    for n in (0, 7, 1023, 1024, 2047, 2048, 2499):
        assert page(data, f"m/{n:05}").run_py == f"# {n}\n"


# ---------------------------------------------------------------------------------- history
@pytest.mark.parametrize(
    ("results", "since", "broke", "words"),
    [
        ("PPPP", 0, None, "It runs since neuronx-cc 2.25.0.0"),
        ("FFPP", 2, None, "It runs since neuronx-cc 2.27.1.0 and transformers 5.23.0. Before that it failed"),
        ("PFPP", 2, None, "Before that"),
        ("PPFF", None, 2, "broke with neuronx-cc 2.27.1.0"),
        ("PFPF", None, 3, "broke with neuronx-cc 2.28.0.0"),
        ("FFFF", None, None, "every pair"),
        ("PIEP", 0, None, "It runs since neuronx-cc 2.25.0.0"),
        ("PIIE", 0, None, "It runs since neuronx-cc 2.25.0.0"),
        ("IIEE", None, None, "not been run"),
    ],
)
def test_history_says_since_when_it_runs_or_when_it_broke(
    tmp_path: Path, results: str, since: int | None, broke: int | None, words: str
) -> None:
    kinds = {"P": PASS, "F": FAIL, "I": INCONCLUSIVE, "E": EXCLUDED}
    reasons = {"F": Reason.CRASH, "I": Reason.NETWORK, "E": Reason.GATED}
    rows = [row(result=kinds[letter], versions=V[n], reason=reasons.get(letter)) for n, letter in enumerate(results)]
    (found,) = page(catalog(tmp_path, *rows), MODEL).histories
    assert [line.compiler_version for line in found.lines] == [version for version, _ in V]
    assert found.runs_since == (None if since is None else found.lines[since].pair)
    assert found.broke_at == (None if broke is None else found.lines[broke].pair)
    assert words in found.sentence


def test_the_address_chooses_the_row(tmp_path: Path) -> None:
    data = catalog(
        tmp_path, row(), row(versions=OLD, result=FAIL), row(cores=4, result=FAIL), row(target="cpu", result=EXCLUDED, neuronx_cc=None)
    )
    assert page(data, MODEL).line.result == "PASS"
    assert page(data, MODEL, Query(compiler_version=OLD[0])).line.result == "FAIL"
    assert page(data, MODEL, Query(cores=4)).line.cores == 4
    assert page(data, MODEL, Query(target="cpu")).line.result == "EXCLUDED"
    assert page(data, MODEL, Query(target="cuda")).line.result == ""
    assert len(page(data, MODEL).lines) == 4
    assert page(data, MODEL, Query(target="cpu")).histories[0].target == "cpu"


# ---------------------------------------------------------------------------------- commands
def test_packages_are_one_command_with_the_indexes_they_need(tmp_path: Path) -> None:
    versions = {
        "torch": "2.13.0",
        "accelerate": "1.15.0",
        "torch_neuronx": "2.13.3.0.1",
        "nki": "0.7.0",
        "python": "3.12.3",
        "neuron_driver": "2.24",
    }
    found = page(catalog(tmp_path, row(**versions)), MODEL)
    assert found.install == (
        "pip install torch==2.13.0 transformers==5.24.0 accelerate==1.15.0 torch-neuronx==2.13.3.0.1 neuronx-cc==2.28.0.0 nki==0.7.0"
        " --extra-index-url https://pip.repos.neuron.amazonaws.com --extra-index-url https://download.pytorch.org/whl/cpu"
    )
    assert ("Python", "3.12.3") in found.stack
    assert ("Neuron driver", "2.24") in found.stack


def test_a_local_version_of_torch_names_its_index() -> None:
    assert pip_command([("torch", "2.13.0+cu130")], "cuda") == (
        "pip install torch==2.13.0+cu130 --extra-index-url https://download.pytorch.org/whl/cu130"
    )
    assert pip_command([], "cpu") == ""


@given(st.text(), st.sampled_from(["hf://buckets/", "s3://"]))
def test_commands_keep_text_from_outside_in_one_word_or_are_not_offered(text: str, scheme: str) -> None:
    command = graphs_command(f"{scheme}{text}", "neuron")
    if command:
        assert command.isascii()
        assert command.isprintable()
        words = shlex.split(command)
        assert words[words.index("./neff_cache") - 1] == f"{scheme}{text}"
        assert words[words.index("./neff_cache") + 1 :] == ["&&", "export", "TORCH_NEURONX_NEFF_CACHE_DIR=$PWD/neff_cache"]
    install = pip_command([("transformers", text)], "cpu")
    assert install == "" or shlex.split(install) == ["pip", "install", f"transformers=={text.partition('+')[0]}"]


def test_graphs_are_copied_by_the_tool_of_their_address(tmp_path: Path) -> None:
    uri = "hf://buckets/org/graphs/neuronx-cc-2.28.0.0/torch-neuronx-2.14.0/neuron-trn2/entries"
    expected = f'hf buckets sync {uri} ./neff_cache && export TORCH_NEURONX_NEFF_CACHE_DIR="$PWD/neff_cache"'
    assert page(catalog(tmp_path, row(graphs_uri=uri)), MODEL).graphs == expected
    assert graphs_command("s3://b/x; rm -rf ~", "cpu").startswith(
        "aws s3 sync 's3://b/x; rm -rf ~' ./inductor_cache && export TORCHINDUCTOR_CACHE_DIR="
    )
    assert graphs_command("ftp://x", "neuron") == graphs_command("", "neuron") == graphs_command("s3://x", "") == ""


# ---------------------------------------------------------------------------------- what to try next
def test_the_nearest_that_works_is_suggested_first(tmp_path: Path) -> None:
    rows = [
        row(result=FAIL, cores=2),
        row(cores=8, versions=V[0]),
        row(cores=4, versions=V[2]),
        row(target="cuda", compiler="inductor", neuronx_cc=None, device="h200"),
    ]
    found = page(catalog(tmp_path, *rows), MODEL, Query(target="neuron", compiler_version=NEW[0]))
    assert sentences(found)[:2] == [
        "It runs on 4 cores of trn2 with neuronx-cc 2.27.1.0 and transformers 5.23.0.",
        "It runs on 1 core of h200 (cuda).",
    ]
    assert sentences(found)[-1] == Reason.DEVICE_OOM.advice


def test_other_cores_with_the_same_versions_come_before_other_versions(tmp_path: Path) -> None:
    rows = [row(result=FAIL, cores=2), row(cores=4), row(cores=16), row(versions=OLD)]
    found = page(catalog(tmp_path, *rows), MODEL, Query(cores=2))
    assert sentences(found)[:2] == [
        "It runs on 4 cores of trn2 with the same versions.",
        "It runs on 1 core of trn2 with neuronx-cc 2.27.1.0 and transformers 5.23.0.",
    ]


def test_models_that_are_alike_are_suggested_where_nothing_of_this_one_works(tmp_path: Path) -> None:
    plan(
        tmp_path,
        *(forecast(f"m/{n}", weights_bytes=n * 10**9) for n in (1, 2, 9)),
        forecast(MODEL, weights_bytes=8 * 10**9, cores=16, tp=16, sizes=[16]),
    )
    data = catalog(tmp_path, row(result=FAIL), row("m/1"), row("m/2", FAIL), row("m/9", cores=2))
    assert sentences(page(data, MODEL)) == [
        "Forecast for neuron: 16 cores of trn2, tensor parallel 16, 8.0 GB of weights, 5.0 GB on the fullest core. Not tested.",
        "m/9 of the same architecture runs on 2 cores of trn2.",
        "m/1 of the same architecture runs on 1 core of trn2.",
        Reason.DEVICE_OOM.advice,
    ]


# ---------------------------------------------------------------------------------- without a row
def test_a_planned_model_has_a_page_that_is_no_result(tmp_path: Path) -> None:
    plan(tmp_path, forecast("m/planned"), refused("m/refused", Reason.TOO_LARGE))
    rank(tmp_path, "m/ranked")
    data = catalog(tmp_path, row())
    planned = page(data, "m/planned")
    assert (planned.line.result, planned.evidence, planned.run_py, len(planned.forecasts)) == ("", None, "", 1)
    assert planned.line.why.startswith("Forecast: 4 cores")
    assert "doesitrun test m/planned" in sentences(planned)[-1]
    refusal = page(data, "m/refused")
    assert (refusal.line.reason, refusal.line.fault, sentences(refusal)) == ("too_large", "incompatible", [Reason.TOO_LARGE.advice])
    assert page(data, "m/ranked").line.why == "Not tested, and not planned either."
    with pytest.raises(ModelNotFoundError, match="doesitrun script"):
        script_of(planned)


def test_an_unknown_model_is_one_sentence_with_near_names(tmp_path: Path) -> None:
    data = catalog(tmp_path, row(), row("meta/Llama-3"))
    with pytest.raises(ModelNotFoundError, match=r"Did you mean Qwen/Qwen3-0\.6B\?"):
        page(data, "qwen3-0.6b")
    with pytest.raises(ModelNotFoundError, match="Did you mean meta/Llama-3"):
        page(data, "meta/Lama-3")
    with pytest.raises(ModelNotFoundError) as raised:
        page(data, HOSTILE)
    assert len(str(raised.value)) < 500


def test_a_reason_of_a_later_version_is_shown_by_its_name(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "data").mkdir()
    values = {"model_id": ["m/a"], "result": ["FAIL"], "reason": ["eaten_by_a_grue"], "error": ["It was dark."], "stage": ["cave"]}
    pq.write_table(pa.table(values), tmp_path / "data/a.parquet")
    found = page(open_data(tmp_path).current(), "m/a")
    failure = found.failure
    assert failure is not None
    assert (failure.meaning, failure.fault, failure.text, failure.stage) == ("eaten_by_a_grue", "", "It was dark.", "cave")
