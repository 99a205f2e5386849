"""The stand-in Hub filled with real models: the corpus of configs and of what the Hub's API has said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.hub_server.hub import Hub
from tests.hub_server.repos import Content

WEIGHTS = ("model.safetensors",)
SIDES = ("hf_quant_config.json", "quantize_config.json")


def fill(hub: Hub, corpus: Path) -> int:
    """Adds every model whose listing is in the corpus, with its config where that is there, too; returns how many.

    Counts and tags are the Hub's of that day. Weights are only listed. A model whose config is not in the corpus
    lists none, so it is no checkpoint of transformers here, whatever it is on the Hub.
    """
    listed = _listed(corpus / "hub")
    configs = {path.stem.replace("__", "/", 1): path for path in (corpus / "configs").glob("*.json") if path.stem.count(".") < 3}
    for name, path in sorted(configs.items()):
        if _is_text_model(path):
            listed.setdefault(name, {"downloads": len(listed), "trendingScore": None})
    for name, info in listed.items():
        config = configs.get(name)
        files: dict[str, Content] = {"README.md": b""}
        if config is not None:
            files |= {"config.json": config, **dict.fromkeys(WEIGHTS)}
            for side in SIDES:
                beside = config.with_name(f"{config.stem}.{side}")
                if beside.exists():
                    files[side] = beside
        told = {key: value for key, value in info.items() if value is not None}
        hub.add("model", name, files, **{"pipeline_tag": "text-generation", **told})
    return len(listed)


def _is_text_model(path: Path) -> bool:
    config = json.loads(path.read_bytes())
    return any(str(name).endswith(("CausalLM", "LMHeadModel", "ConditionalGeneration")) for name in config.get("architectures") or ())


def _listed(folder: Path) -> dict[str, dict[str, Any]]:
    """What the corpus has of listings, by model; later files add what earlier ones did not tell."""
    found: dict[str, dict[str, Any]] = {}

    def add(name: str, **told: Any) -> None:
        known = found.setdefault(name, {})
        known |= {key: value for key, value in told.items() if known.get(key) is None}

    for model in json.loads((folder / "api_models_listing_2025-11.json").read_bytes()):
        add(model["id"], **{key: value for key, value in model.items() if key not in ("id", "modelId", "private")})
    for model in json.loads((folder / "trendings_hf_trending_2026-08.json").read_bytes())["trending_models"]:
        add(
            model["id"],
            downloads=model["downloads"],
            likes=model["likes"],
            trendingScore=model["trending_score"],
            pipeline_tag=model["pipeline_tag"] or None,
        )
    for name, entry in json.loads((folder / "api_trending_2026-08.json").read_bytes()).items():
        data = entry["repoData"]
        add(name, downloads=data["downloads"], likes=data["likes"], pipeline_tag=data.get("pipeline_tag"), gated=data["gated"])
    for model in json.loads((folder / "models_snapshot_2026-08-22.json").read_bytes())["models"]:
        add(model["id"], **{key: model[key] for key in ("likes", "downloads", "pipeline_tag", "library_name", "createdAt")})
    for model in json.loads((folder / "inferenceatlas_huggingface_models_2026-02.json").read_bytes())["models"]:
        add(model["model_id"], **{key: model[key] for key in ("downloads", "likes", "pipeline_tag", "tags", "gated")})
    return found
