"""Stack script: what models look like, built on the meta device from their configs alone, many in one process.

Run as `python outline.py REQUEST.json ANSWER.json`. The request is
`{"dtype": "bfloat16", "models": [{"key", "config", "auto_classes": {task: class}, "source", "trust_remote_code"}]}`;
the answer is `{"versions": {...}, "models": [...]}` with one outline, or one `{"key", "error": {"kind", "detail"}}`,
per model. A model that cannot be built never takes the others down. No weight is read, and code from a model's own
repository is run only where its request says so.
"""

# ruff: noqa: SLF001 - transformers keeps in private names what its own loader reads

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import CONFIG_MAPPING, MODEL_FOR_MASKED_LM_MAPPING, AutoConfig
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.core_model_loading import build_glob_alternation
from transformers.distributed.parallel_utils import replace_layer_number_by_wildcard
from transformers.initialization import no_init_weights

KEY = ("k_proj", "key", "kv_b_proj", "wk", "key_proj", "wkv_b")
ATTENTION = (
    *KEY,
    "q_proj",
    "query",
    "q_b_proj",
    "wq",
    "query_proj",
    "wq_b",
    "qkv_proj",
    "query_key_value",
    "qkv",
    "c_attn",
    "Wqkv",
    "wqkv",
)
GENERATIVE = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration", "ForImageTextToText")
RECURRENT = ("linear_attention", "conv", "dummy", "mamba", "mamba2", "recurrent")
LAYER_COUNTS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers")
MOST_LAYERS = 2000
EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "moe_topk", "moe_k", "experts_per_token", "top_k_experts", "num_experts_per_token")


class OutlineError(Exception):
    """A model has no outline; `kind` says why in one word of the closed list in plan/outlines.py."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


# ---------------------------------------------------------------------------------- from config to model
def config_of(model: Mapping[str, Any]) -> Any:
    """The transformers config object of a request. Raises OutlineError."""
    values = dict(model["config"])
    remote = "AutoConfig" in (values.get("auto_map") or {})
    if remote and model.get("trust_remote_code"):
        return AutoConfig.from_pretrained(model["source"], revision=model.get("revision"), trust_remote_code=True)
    kind = values.get("model_type")
    if not isinstance(kind, str):
        if values.get("auto_map"):
            raise OutlineError("remote_code", "its config names no model type and relies on code in its own repository")
        raise OutlineError("no_model_type", "its config.json has no model_type, so transformers cannot tell what it is")
    if kind == "mistral" and "layer_types" in values:
        kind = values["model_type"] = "ministral"  # as AutoConfig.from_pretrained does
    if kind not in CONFIG_MAPPING:
        if values.get("auto_map"):
            raise OutlineError("remote_code", f"its model type {kind!r} is defined by code in its own repository")
        raise OutlineError("unknown_architecture", f"transformers {transformers.__version__} has no model type {kind!r}")
    config_class = CONFIG_MAPPING[kind]
    # Infinity is stored as {"__float__": "Infinity"} since transformers 5.
    decoded = getattr(config_class, "_decode_special_floats", dict)(values)
    try:
        config = config_class.from_dict(decoded)
    except Exception as error:
        raise OutlineError("invalid_config", f"transformers rejects its config: {one_line(error)}") from error
    check_sanity(config)
    return config


def check_sanity(config: Any) -> None:
    """Raises OutlineError for what transformers accepts, but no model has: it would be built for hours, or not at all."""
    layers = first_int(config.get_text_config(decoder=True), LAYER_COUNTS)
    if layers > MOST_LAYERS:
        raise OutlineError("invalid_config", f"its config asks for {layers} layers, and no model has more than {MOST_LAYERS}")
    named = getattr(config, "architectures", None)
    if named is not None and not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise OutlineError("invalid_config", "the architectures of its config are not a list of class names")


def model_class_of(config: Any, auto_class: str) -> type | None:
    """The class that the auto class maps this config to, or None."""
    mapping = getattr(transformers, auto_class)._model_mapping
    if type(config) not in mapping:
        return None
    found: Any = mapping[type(config)]
    return cast("type", found[0] if isinstance(found, (list, tuple)) else found)


def choose_task(model: Mapping[str, Any], config: Any) -> tuple[str, str]:
    """(task, auto class) of the first asked-for task that can load the class which the config names. Raises OutlineError."""
    named = [str(name) for name in (getattr(config, "architectures", None) or [])]
    remote = (getattr(config, "auto_map", None) or {}) if model.get("trust_remote_code") else {}
    classes = {task: model_class_of(config, auto) for task, auto in model["auto_classes"].items()}
    exact = [task for task, cls in classes.items() if cls is not None and cls.__name__ in named]
    able = [task for task, cls in classes.items() if cls is not None and stands_in(named, config)]
    code = [task for task, auto in model["auto_classes"].items() if auto in remote]
    if chosen := [*exact, *code, *able]:
        return chosen[0], model["auto_classes"][chosen[0]]
    what = named[0] if named else type(config).__name__
    own_code = any(name.startswith("AutoModel") for name in (model["config"].get("auto_map") or {}))
    if own_code and not any(hasattr(transformers, name) for name in named):
        raise OutlineError("remote_code", f"its class {what} is defined by code in its own repository")
    raise OutlineError("task", f"{what} is no model for {' or '.join(model['auto_classes'])}")


def stands_in(named: list[str], config: Any) -> bool:
    """True when the task's class loads a checkpoint of the named classes: they generate text, too, by a decoder alone.

    A name such as XForSequenceClassification or XForMaskedLM is another kind of model; a bare XModel has no head, which
    is no loss where the head is the embedding.
    """
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING and not getattr(config, "is_decoder", False):
        return False
    if config.is_encoder_decoder:
        return False
    if not named:
        return True
    if any(getattr(getattr(transformers, name, None), "config_class", None) is type(config) for name in named if name.endswith(GENERATIVE)):
        return False  # this config has a generative class of its own, for another task
    generates = any(name.endswith(GENERATIVE) for name in named)
    headless = any(name.endswith("Model") and not name.endswith("HeadModel") for name in named)
    return generates or (headless and bool(getattr(config.get_text_config(), "tie_word_embeddings", False)))


def build(model: Mapping[str, Any], config: Any, auto_class: str, dtype: torch.dtype) -> Any:
    """The model on the meta device, tied as from_pretrained ties it. Raises OutlineError."""
    extra = {"trust_remote_code": True} if model.get("trust_remote_code") else {}
    try:
        with torch.device("meta"), no_init_weights():  # there is nothing to initialise
            built = getattr(transformers, auto_class).from_config(config, dtype=dtype, **extra)
        built.tie_weights()
    except ImportError as error:
        kind = "remote_code_broken" if extra else "missing_package"
        raise OutlineError(kind, f"it cannot be built: {one_line(error)}") from error
    except Exception as error:
        kind = "remote_code_broken" if extra else "invalid_config"
        raise OutlineError(kind, f"transformers cannot build it from its config: {one_line(error)}") from error
    return built


# ---------------------------------------------------------------------------------- from model to outline
def parameters_of(model: Any, config: Any) -> list[dict[str, Any]]:
    """Parameters and persistent buffers, grouped by name with the layer numbers replaced, shape and dtype."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    kept, linear, skipped = float32_pattern(model), linear_names(model), skipped_modules(config)
    for name, tensor, is_buffer in tensors_of(model):
        pattern = replace_layer_number_by_wildcard(name)
        quantizable = not is_buffer and name in linear and not any(part in name for part in skipped)
        key = (pattern, tensor.shape, tensor.dtype, quantizable)
        if key in groups:
            groups[key]["count"] += 1
            continue
        long = kept is not None and tensor.is_floating_point() and kept.search(name) is not None
        groups[key] = {
            "name": pattern,
            "shape": list(tensor.shape),
            "dtype": "float32" if long else str(tensor.dtype).removeprefix("torch."),
            "itemsize": 4 if long else tensor.element_size(),
            "count": 1,
            "buffer": is_buffer,
            "quantizable": quantizable,
            "tp": None if is_buffer else style_of(pattern, model.tp_plan),
            "ep": None if is_buffer else style_of(pattern, model.ep_plan),
        }
    return list(groups.values())


def style_of(pattern: str, plan: Mapping[str, str] | None) -> str | None:
    """The rule for a parameter: its own, or that of the module which owns it (as in transformers' _get_parameter_plan)."""
    return (plan or {}).get(pattern) or (plan or {}).get(pattern.rpartition(".")[0])


def tensors_of(model: Any) -> Iterator[tuple[str, torch.Tensor, bool]]:
    """(name, tensor, whether it is a buffer) of all that a checkpoint holds; tied parameters come once."""
    seen: set[int] = set()
    for prefix, module in model.named_modules():
        start = f"{prefix}." if prefix else ""
        for name, parameter in module._parameters.items():
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{start}{name}", parameter, False
        for name, buffer in module._buffers.items():
            if buffer is not None and name not in module._non_persistent_buffers_set:
                yield f"{start}{name}", buffer, True


def float32_pattern(model: Any) -> re.Pattern[str] | None:
    """Names that stay float32 although the model is loaded in a shorter dtype."""
    plan = model._get_dtype_plan(model.dtype) if hasattr(model, "_get_dtype_plan") else {}
    if not plan:
        return None
    alternation, _, _ = build_glob_alternation(list(plan))  # as the loader matches them
    return cast("re.Pattern[str]", alternation)


def linear_names(model: Any) -> set[str]:
    """Weights that quantisation methods shorten: those of linear layers and experts, but not the head's."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    names = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear) and module is not head}
    return names | {name for name, parameter, _ in tensors_of(model) if parameter.ndim == 3 and ".experts." in name}


def skipped_modules(config: Any) -> tuple[str, ...]:
    quantization = getattr(config, "quantization_config", None) or {}
    if not isinstance(quantization, Mapping):
        return ()
    names = quantization.get("modules_to_not_convert") or quantization.get("ignored_layers") or ()
    return tuple(str(name) for name in names)


def attention_of(model: Any) -> list[dict[str, Any]]:
    """Heads of each kind of attention module that the TP plan touches, with the plan's rules under it."""
    plan = model.tp_plan or {}
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, module in model.named_modules():
        children = module._modules
        if not plan or not any(child in ATTENTION for child in children):
            continue
        pattern = replace_layer_number_by_wildcard(name)
        key = (pattern, *heads_of(module, children))
        if key not in groups:
            groups[key] = attention_group(key, module, plan)
        groups[key]["count"] += 1
    return [group for group in groups.values() if group["styles"]]


def attention_group(key: tuple[str, int, int], module: nn.Module, plan: Mapping[str, str]) -> dict[str, Any]:
    """One kind of attention module. Another kind of module may share its pattern: only rules for its own parts count."""
    pattern, heads, kv_heads = key
    parts = {replace_layer_number_by_wildcard(f"{pattern}.{part}") for part, _ in chain(module.named_modules(), module.named_parameters())}
    styles = {rule: style for rule, style in plan.items() if rule == pattern or rule in parts}
    bare = [rule for rule in styles if rule.rpartition(".")[2] in module._parameters]
    return {"pattern": pattern, "heads": heads, "kv_heads": kv_heads, "count": 0, "styles": styles, "bare": bare}


def heads_of(module: nn.Module, children: Mapping[str, nn.Module | None]) -> tuple[int, int]:
    """(query heads, key/value heads) of one attention module; 0 where it cannot be told."""
    config = getattr(module, "config", None)
    head_dim = first_int(module, ("head_dim", "attention_head_size", "head_size"))
    key = next((children[name] for name in KEY if name in children), None)
    width = getattr(key, "out_features", 0) or getattr(getattr(key, "linear", None), "out_features", 0)
    latent = "kv_b_proj" in children or "wkv_b" in children
    declared = first_int(module, ("num_heads", "num_attention_heads", "n_heads", "n_head")) or first_int(
        config, ("num_attention_heads", "num_heads", "n_head", "encoder_attention_heads")
    )
    if latent:
        return declared, declared
    kv_heads = width // head_dim if width and head_dim and width % head_dim == 0 else 0
    kv_heads = (
        kv_heads or first_int(module, ("num_key_value_heads", "num_kv_heads")) or first_int(config, ("num_key_value_heads",)) or declared
    )
    groups = first_int(module, ("num_key_value_groups", "n_rep"))
    return (kv_heads * groups if groups else declared), kv_heads


def first_int(owner: Any, names: Iterable[str]) -> int:
    for name in names:
        try:
            value = getattr(owner, name, None)
        except (AttributeError, RuntimeError):  # it differs from layer to layer
            continue
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def cache_of(config: Any) -> list[dict[str, int | None]]:
    """What a static cache holds, by kind of layer: heads, widths of key and value, and the window that caps its length."""
    text = config.get_text_config(decoder=True)
    types, settings = get_layer_types_and_kwargs(text)
    groups: dict[tuple[Any, ...], dict[str, int | None]] = {}
    for kind, extra, layer in zip(types, settings, text.per_layer_config, strict=False):
        heads = first_int(layer, ("num_attention_heads", "n_head", "n_heads", "decoder_attention_heads"))
        if kind in RECURRENT or not heads:
            continue
        key = (*cache_widths(layer, heads), extra.get("sliding_window"))
        kv_heads, k_dim, v_dim, window = key
        group = groups.setdefault(key, {"kv_heads": kv_heads, "k_dim": k_dim, "v_dim": v_dim, "window": window, "layers": 0})
        group["layers"] = (group["layers"] or 0) + 1
    return list(groups.values())


def cache_widths(layer: Any, heads: int) -> tuple[int, int, int]:
    """(heads, width of a key, width of a value) that one layer caches per token."""
    nope, rope = first_int(layer, ("qk_nope_head_dim",)), first_int(layer, ("qk_rope_head_dim",))
    if first_int(layer, ("kv_lora_rank",)) and nope:  # latent attention: transformers caches it expanded
        return heads, nope + rope, first_int(layer, ("v_head_dim",)) or nope + rope
    width = first_int(layer, ("head_dim",)) or first_int(layer, ("hidden_size", "n_embd", "d_model")) // heads
    return first_int(layer, ("num_key_value_heads",)) or heads, width, first_int(layer, ("v_head_dim",)) or width


def outline_of(model: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """One model's outline. Raises OutlineError."""
    started = time.perf_counter()
    config = config_of(model)
    task, auto_class = choose_task(model, config)
    built = build(model, config, auto_class, dtype)
    text = built.config.get_text_config(decoder=True)
    types = sorted(set(get_layer_types_and_kwargs(text)[0]))
    head = built.get_output_embeddings()
    parameters = parameters_of(built, config)
    return {
        "key": model["key"],
        "task": task,
        "auto_class": auto_class,
        "class_name": type(built).__name__,
        "model_type": built.config.model_type,
        "parameters": parameters,
        "tp_plan": dict(built.tp_plan or {}),
        "ep_plan": dict(built.ep_plan or {}),
        "attention": attention_of(built),
        "head": next((name for name, module in built.named_modules() if head is not None and module is head), None),
        "tied": head is not None and tied_head(built, head),
        "unloaded": {
            "a copy of the tied head": head.weight.numel() if head is not None and tied_head(built, head) else 0,
            "layers for multi-token prediction": prediction_elements(built, text),
        },
        "cache": cache_of(built.config),
        "layer_types": types,
        "layers": first_int(text, LAYER_COUNTS),
        "vocab": first_int(text, ("vocab_size",)),
        "experts": experts_of(parameters, text),
        "top_k": first_int(text, TOP_K),
        "static_cache": bool(getattr(built, "_can_compile_fullgraph", False)),
        "compiled": "llama4" not in built.config.model_type,
        "stateful": bool(getattr(built, "_is_stateful", False)),
        "seconds": round(time.perf_counter() - started, 4),
    }


def prediction_elements(model: Any, text: Any) -> int:
    """Elements of the layers for multi-token prediction: checkpoints carry them, from_pretrained leaves them out.

    Each is one more decoder layer with a projection from twice the hidden size and three norms (transformers' MtpLayer).
    """
    count = first_int(text, ("num_mtp_layers", "num_nextn_predict_layers", "mtp_num_hidden_layers"))
    layers = getattr(model.get_decoder(), "layers", None) if count and hasattr(model, "get_decoder") else None
    if not layers:
        return 0
    hidden = first_int(text, ("hidden_size",))
    layer: int = sum(parameter.numel() for parameter in layers[-1].parameters())
    return count * (layer + 2 * hidden * hidden + 3 * hidden)


def tied_head(model: Any, head: Any) -> bool:
    embeddings = model.get_input_embeddings()
    return embeddings is not None and getattr(head, "weight", None) is getattr(embeddings, "weight", 0)


def experts_of(parameters: list[dict[str, Any]], text: Any) -> int:
    """Routed experts per layer: the first dimension of their stacked weights, else what the config says."""
    experts = [parameter for parameter in parameters if ".experts." in parameter["name"]]
    stacked = next((parameter["shape"][0] for parameter in experts if len(parameter["shape"]) == 3), 0)
    return stacked or (first_int(text, EXPERT_COUNTS) if experts else 0)


# ---------------------------------------------------------------------------------- the door
def one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."


def answer_for(model: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    try:
        return outline_of(model, dtype)
    except OutlineError as error:
        return {"key": model["key"], "error": {"kind": error.kind, "detail": str(error)}}
    except Exception as error:  # noqa: BLE001 one model's fault must not take the others down
        return {
            "key": model["key"],
            "error": {"kind": "invalid_config", "detail": f"no outline: {type(error).__name__}: {one_line(error)}"},
        }


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a whole request."""
    dtype = getattr(torch, request.get("dtype", "bfloat16"))
    models = []
    for model in request["models"]:
        wanted = getattr(torch, model["dtype"]) if model.get("dtype") else dtype
        models.append(answer_for(model, wanted))
    return {"versions": {"torch": torch.__version__, "transformers": transformers.__version__}, "models": models}


def main(request_path: str, answer_path: str) -> None:
    transformers.logging.set_verbosity_error()
    warnings.filterwarnings("ignore")
    gc.freeze()  # what is imported stays: collections between models need not look at it
    request = json.loads(Path(request_path).read_text(encoding="utf-8"))
    # Code of models may print: the answer is the only thing that is read.
    with contextlib.redirect_stdout(sys.stderr):
        result = answer(request)
    partial = f"{answer_path}.part"
    Path(partial).write_text(json.dumps(result), encoding="utf-8")
    os.replace(partial, answer_path)  # noqa: PTH105 atomic


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
