"""Published and brought in through the real client: what was run arrives, whole, with its words, and loads with every library."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.hub_server import TOKEN, Fault, Hub
from tests.pure.test_table import OLDER, REFERENCE

from doesitrun.campaign import publishing
from doesitrun.campaign.publishing import Publication, PublishAsk
from doesitrun.errors import DoesItRunError, HubError, ModelNotFoundError, UsageError, WorkspaceError
from doesitrun.hub import datasets, traffic
from doesitrun.outcomes import Reason, Result, Stage
from doesitrun.records import COLUMNS, Row
from doesitrun.store.table import to_parquet
from doesitrun.store.workspace import Workspace, write_row

# The client's own uploads use an argument that its HTTP library calls old.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
MOMENT = datetime(2026, 3, 1, 12, 30, 15, tzinfo=UTC)
NAME = "me/results"
CPU = "data/cpu/inductor-2.13.0/transformers-5.24.0.parquet"
ERROR = "NCC_EVRF051 <script>alert(1)</script> | ` \u202e \0 " + "x" * 100_000
STACK = {"target": "cpu", "compiler": "inductor", "compiler_version": "2.13.0", "library": "transformers", "library_version": "5.24.0"}


def attempt(root: Path, name: str, result: Result | None, **values: Any) -> Path:
    row = Row(model_id=f"org/{name}", result=result, tested_at=MOMENT, **(STACK | values))
    return Workspace(root).new_attempt(f"{name}+cpu", row)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A workspace with one row of each result, and one that is still running."""
    root = tmp_path / "results"
    attempt(root, "passes", Result.PASS, output_tokens=[1, 2])
    attempt(root, "fails", Result.FAIL, stage=Stage.COMPILE, reason=Reason.COMPILE_ERROR, error=ERROR)
    attempt(root, "gated", Result.EXCLUDED, stage=Stage.PLAN, reason=Reason.GATED, exclusion="org/gated is gated.")
    attempt(root, "unlucky", Result.INCONCLUSIVE, stage=Stage.LOAD, reason=Reason.HUB_THROTTLED, error="429")
    attempt(root, "running", None)
    return root


def publish(root: Path, warnings: list[str] | None = None, **options: Any) -> Publication:
    ask = PublishAsk(NAME, **{"create": True, **options})
    return publishing.publish(ask, root, (warnings if warnings is not None else []).append, lambda _: None)


def bring_in(source: str, root: Path, warnings: list[str] | None = None) -> list[publishing.Brought]:
    return publishing.bring_in(source, None, root, (warnings if warnings is not None else []).append, lambda _: None)


def there(hub: Hub) -> dict[str, bytes]:
    files = hub.repos["dataset", NAME].head.files
    return {path: file.content for path, file in files.items() if isinstance(file.content, bytes)}


def table_of(data: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(data))


def test_every_row_arrives_with_its_words_in_one_commit(real_client: Hub, results: Path) -> None:
    done = publish(results)
    repo = real_client.repos["dataset", NAME]
    assert [commit.title for commit in repo.commits[1:]] == ["Results: 4 new, 0 changed rows"]
    assert done.commit == repo.head.sha
    assert "found there: 4 rows in 1 data files" in done.said
    rows = {row["model_id"]: row for row in table_of(there(real_client)[CPU]).to_pylist()}
    assert {name: row["result"] for name, row in rows.items()} == {
        "org/passes": "PASS",
        "org/fails": "FAIL",
        "org/gated": "EXCLUDED",
        "org/unlucky": "INCONCLUSIVE",
    }
    assert (rows["org/fails"]["error"], rows["org/fails"]["reason"]) == (ERROR, "compile_error")
    assert (rows["org/gated"]["exclusion"], rows["org/gated"]["reason"]) == ("org/gated is gated.", "gated")
    assert all(row["run_id"] for row in rows.values())
    card = there(real_client)["README.md"].decode()
    assert f'pd.read_parquet("hf://datasets/{NAME}/{CPU}")' in card
    assert f'load_dataset("{NAME}", "cpu"' in card


def test_a_row_that_failed_is_there_from_its_start_and_when_it_has_ended(real_client: Hub, tmp_path: Path) -> None:
    folder = attempt(tmp_path / "results", "m", None)
    assert json.loads((folder / "row.json").read_bytes())["model_id"] == "org/m"
    with pytest.raises(UsageError, match="holds no results"):
        publish(tmp_path / "results")
    write_row(folder, Row(model_id="org/m", result=Result.FAIL, reason=Reason.CRASH, error="boom", tested_at=MOMENT, **STACK))
    publish(tmp_path / "results")
    assert table_of(there(real_client)[CPU])["result"].to_pylist() == ["FAIL"]


def test_what_is_there_already_is_not_sent_again(real_client: Hub, results: Path) -> None:
    first = publish(results)
    again = publish(results, create=False)
    assert (again.commit, {change.what for change in again.changes}) == (None, {"unchanged"})
    assert real_client.repos["dataset", NAME].head.sha == first.commit


def test_a_dry_run_shows_the_rows_and_changes_nothing(real_client: Hub, results: Path) -> None:
    shown = publish(results, dry_run=True)
    assert ("dataset", NAME) not in real_client.repos
    (change,) = shown.changes
    assert (change.path, change.rows_there, change.rows_here, change.added, change.what) == (CPU, 0, 4, 4, "new")
    publish(results)
    attempt(results, "new", Result.PASS)
    attempt(results, "unlucky", Result.FAIL, reason=Reason.CRASH, error="now it is known")
    (change,) = publish(results, dry_run=True).changes
    assert (change.rows_there, change.rows_here, change.added, change.changed, change.lost) == (4, 5, 1, 1, 0)


def test_a_file_that_would_lose_rows_stops_everything_unless_it_is_meant(real_client: Hub, results: Path) -> None:
    before = publish(results).commit
    shutil.rmtree(results / "attempts" / "fails+cpu")
    attempt(results, "new", Result.PASS)  # as many rows as before: what counts is which
    assert publish(results, dry_run=True).changes[0].lost == 1
    with pytest.raises(UsageError, match=r"would lose 1 of its 4 rows.*--allow-shrink"):
        publish(results)
    assert real_client.repos["dataset", NAME].head.sha == before
    assert publish(results, allow_shrink=True).commit != before
    assert "org/fails" not in table_of(there(real_client)[CPU])["model_id"].to_pylist()


def test_files_of_others_stay_and_those_of_older_shapes_are_brought_to_todays_columns(real_client: Hub, results: Path) -> None:
    old = pa.Table.from_pylist(
        [{"model_id": "org/old", "result": "PASS", "tp": 4, "run_id": "their/1"}], pa.schema([*OLDER, ("run_id", pa.string())])
    )
    sink = io.BytesIO()
    pq.write_table(old, sink)
    theirs = "data/neuron/neuronx-cc-2.20/transformers-4.57.parquet"
    real_client.add("dataset", NAME, {theirs: sink.getvalue(), "notes.txt": b"mine"})
    done = publish(results)
    assert {change.path: change.what for change in done.changes} == {CPU: "new", theirs: "upgraded"}
    assert there(real_client)["notes.txt"] == b"mine"
    table = table_of(there(real_client)[theirs])
    assert table.column_names == [column.name for column in COLUMNS]
    assert (table["model_id"].to_pylist(), table["tp"].to_pylist()) == (["org/old"], [4])


def test_a_card_that_somebody_wrote_is_kept(real_client: Hub, results: Path) -> None:
    real_client.add("dataset", NAME, {"README.md": b"---\nlicense: mit\n---\n# Mine\n"})
    warnings: list[str] = []
    publish(results, warnings)
    assert there(real_client)["README.md"].endswith(b"# Mine\n")
    assert any("--replace-card" in warning for warning in warnings)
    publish(results, replace_card=True)
    assert b"# Does it run?" in there(real_client)["README.md"]


def test_a_pass_without_a_run_is_never_published(real_client: Hub, results: Path) -> None:
    Workspace(results).export()
    claim = results / "data/cpu/inductor-2.13.0/claimed.parquet"
    claim.write_bytes(to_parquet([Row(model_id="org/claimed", result=Result.PASS, **STACK)]))
    with pytest.raises(WorkspaceError, match="PASS for org/claimed without a run id"):
        publish(results)
    assert ("dataset", NAME) not in real_client.repos


def test_nothing_is_published_when_somebody_else_was_faster(real_client: Hub, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(results)
    attempt(results, "new", Result.PASS)
    repo = real_client.repos["dataset", NAME]
    sending = datasets.commit

    def late(*arguments: Any) -> Any:
        repo.commit(dict(repo.head.files), "somebody else's")
        return sending(*arguments)

    monkeypatch.setattr(datasets, "commit", late)
    with pytest.raises(HubError, match="Somebody else has changed"):
        publish(results)
    assert repo.head.title == "somebody else's"


def test_what_the_hub_lost_on_the_way_is_noticed(real_client: Hub, results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looking = datasets.look

    def forgetful(*arguments: Any) -> datasets.RemoteDataset:
        found = looking(*arguments)
        return datasets.RemoteDataset(found.name, found.commit, {path: file for path, file in found.files.items() if path != CPU})

    monkeypatch.setattr(datasets, "look", forgetful)
    with pytest.raises(HubError, match="does not hold what was sent"):
        publish(results)


@pytest.mark.parametrize(
    ("fault", "pauses"),
    [
        (Fault(r"/api/datasets/.*/commit/main", status=429, headers={"Retry-After": "4"}), [4.0]),
        (Fault(r"/api/datasets/.*/tree/.*", status=500), [1.0]),
        (Fault(r"/lfs/.*", method="PUT", status=503, headers={"Retry-After": "0"}), []),  # the client's own doing
    ],
)
def test_a_fault_on_the_way_is_waited_out(
    real_client: Hub, results: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault, pauses: list[float]
) -> None:
    waited: list[float] = []
    monkeypatch.setattr(traffic.Traffic, "_wait", lambda _self, _why, seconds: waited.append(seconds))
    real_client.fail(fault)
    assert publish(results).commit
    assert waited == pauses


@pytest.mark.parametrize(
    ("change", "kind", "said"),
    [
        (lambda hub: hub.tokens.update({TOKEN: {"somebody"}}), HubError, r"does not let us write to me/results \(403\): set HF_TOKEN"),
        (lambda hub: hub.fail(Fault(r"/api/datasets/.*/commit/main", status=500)), HubError, "500"),
        (lambda hub: hub.fail(Fault(r"/api/datasets/.*/preupload/.*", status=403)), HubError, "does not let us write"),
    ],
)
def test_a_hub_that_refuses_is_one_sentence(
    real_client: Hub, results: Path, change: Callable[[Hub], object], kind: type[DoesItRunError], said: str
) -> None:
    change(real_client)
    with pytest.raises(kind, match=said) as failed:
        publish(results)
    assert "\n" not in str(failed.value)
    assert TOKEN not in str(failed.value)


def test_a_dataset_that_is_not_there_is_made_only_when_asked(real_client: Hub, results: Path) -> None:
    with pytest.raises(ModelNotFoundError, match="--create"):
        publish(results, create=False)
    publish(results, private=True)
    assert real_client.repos["dataset", NAME].private
    for name in ("results", "a/b/c", "me/ results"):
        with pytest.raises(UsageError):
            publishing.publish(PublishAsk(name), results, print, lambda _: None)


# ---------------------------------------------------------------------------------- import, and every shape together
def reference(root: Path) -> Path:
    """The reference dataset's two shapes, one file each, as they would lie on its disk."""
    whole = {
        "library": "transformers",
        "library_version": "5.18.0",
        "transformers": "5.18.0",
        "neuronx_cc": "2.24.1",
        "torch_neuronx": "2.9",
    }
    rows = [
        whole
        | {"model_id": "org/ran", "result": "PASS", "tp": 4, "wall_s": 7, "cpu_match": "17/32", "tested_at": MOMENT, "run_py": "print()"},
        {"model_id": "org/shut", "result": "EXCLUDED", "exclusion": "gated", "tested_at": MOMENT},
    ]
    older = whole | {"neuronx_cc": "2.20.0", "model_id": "org/ran", "result": "FAIL", "error": ERROR, "tp": 4, "wall_s": 61.0}
    older |= {"tested_at": "2026-03-01T12:30:15.123456+00:00", "instance_type": "trn2.3xlarge"}
    for name, fields, lines in (("new", REFERENCE, rows), ("old", OLDER, [older])):
        path = root / "data" / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(lines, schema=pa.schema(fields)), path)
    return root


def test_both_shapes_of_the_reference_are_brought_in_and_our_exports_leave_them_alone(
    real_client: Hub, results: Path, tmp_path: Path
) -> None:
    folder = reference(tmp_path / "reference")
    warnings: list[str] = []
    new, old = sorted(bring_in(str(folder), results, warnings), key=lambda each: -each.rows)
    assert new.path == results / "data/neuron/neuronx-cc-2.24.1/imported-reference-transformers-5.18.0.parquet"
    assert (new.rows, old.rows, old.path.parent.name) == (2, 1, "neuronx-cc-2.20.0")
    assert any("instance_type" in warning for warning in warnings)
    before = new.path.read_bytes()
    attempt(results, "more", Result.PASS)
    Workspace(results).export()
    assert new.path.read_bytes() == before
    rows = {row["model_id"]: row for row in table_of(before).to_pylist()}
    assert (rows["org/shut"]["compiler_version"], rows["org/shut"]["exclusion"]) == ("2.24.1", "gated")
    assert rows["org/ran"]["run_id"].startswith("imported:local/reference/data/new.parquet#")
    assert "neuronx-cc 2.24.1" in (results / "README.md").read_text()
    assert publish(results).commit


def test_a_dataset_on_the_hub_is_brought_in_at_its_commit(real_client: Hub, tmp_path: Path) -> None:
    folder = reference(tmp_path / "reference")
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*.parquet")}
    repo = real_client.add("dataset", "aws/results", files | {"rankings/2026-01-01.parquet": b"no results"})
    brought = bring_in("aws/results", tmp_path / "results")
    assert sum(each.rows for each in brought) == 3
    assert table_of(brought[-1].path.read_bytes())["run_id"][0].as_py().startswith(f"imported:aws/results@{repo.head.sha[:12]}/data/")


@pytest.mark.parametrize(
    ("source", "said"),
    [("./nothing", "There is no folder"), ("empty", "holds no Parquet file"), ("damaged", "no Parquet file that can be read")],
)
def test_what_cannot_be_brought_in_changes_nothing(source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    reference(tmp_path / "damaged")
    (tmp_path / "damaged/data/x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(DoesItRunError, match=said):
        bring_in(source, tmp_path / "results")
    assert not (tmp_path / "results").exists()


FIRST = [column.name for column in COLUMNS[:60] if column.name not in ("rungs", "passage_loss", "judge", "judge_s", "reference_s")]
"""A shape of ours from before some columns were added."""
LOAD = """
import json, sys
import datasets, duckdb, pandas, polars
name = sys.argv[1]
found = {}
paths = sorted(json.loads(sys.argv[2]))
hf = [f"hf://datasets/{name}/{path}" for path in paths]
for config in ("cpu", "neuron"):
    found[f"datasets {config}"] = datasets.load_dataset(name, config, split="train").num_rows
found["pandas"] = len(pandas.concat([pandas.read_parquet(path) for path in hf]))
from huggingface_hub import HfFileSystem
files = HfFileSystem()
local = [files.open(path[5:]).read() for path in hf]
found["polars"] = polars.concat([polars.read_parquet(data) for data in local]).height
import tempfile, pathlib
folder = pathlib.Path(tempfile.mkdtemp())
for number, data in enumerate(local):
    (folder / f"{number}.parquet").write_bytes(data)
found["polars scan"] = polars.scan_parquet(folder / "*.parquet").select(polars.len()).collect().item()
found["pandas folder"] = len(pandas.read_parquet(folder))
found["duckdb"] = duckdb.sql(f"select count(*), count(exclusion) from read_parquet('{folder}/*.parquet')").fetchall()[0]
print(json.dumps(found))
"""


def test_every_shape_ever_written_loads_together_with_every_library(real_client: Hub, results: Path, tmp_path: Path) -> None:
    bring_in(str(reference(tmp_path / "reference")), results)
    first = table_of(to_parquet([Row(model_id="org/first", result=Result.PASS, run_id="x/1", **STACK)])).select(FIRST)
    sink = io.BytesIO()
    pq.write_table(first, sink)
    real_client.add("dataset", NAME, {"data/cpu/inductor-2.12.0/transformers-5.20.0.parquet": sink.getvalue()})
    publish(results)
    paths = [path for path in there(real_client) if path.endswith(".parquet")]
    assert len(paths) == 4
    environment = os.environ | real_client.environment(tmp_path / "other") | {"PYTHONWARNINGS": "ignore"}
    argv = [sys.executable, "-c", LOAD, NAME, json.dumps(paths)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "datasets cpu": 5,
        "datasets neuron": 3,
        "pandas": 8,
        "polars": 8,
        "polars scan": 8,
        "pandas folder": 8,
        "duckdb": [8, 2],
    }
