"""Quantised weights are sized as they are loaded, or refused with what they would need."""

from __future__ import annotations

from typing import Any

import pytest

from doesitrun.outcomes import Reason
from doesitrun.plan.planner import PlanOptions, make_plan
from doesitrun.plan.quantization import method_of
from doesitrun.records import Plan, Refusal
from doesitrun.targets import DEVICES
from doesitrun.tasks import TASKS
from tests.pure.outline_cases import checkpoint, outline

FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def planned(device: str, quantization: dict[str, Any] | None, **fields: Any) -> Plan | Refusal:
    model = checkpoint(quantization=quantization, **fields)
    return make_plan(model, outline(), DEVICES[device], TASKS["text-generation"], PlanOptions())


@pytest.mark.parametrize("device", ["trn2", "cpu", "a100"])
@pytest.mark.parametrize("method", ["fp8", "mxfp4", "mxfp8"])
def test_weights_that_are_dequantised_are_sized_in_bfloat16(device: str, method: str) -> None:
    plain, quantised = planned(device, None), planned(device, {"quant_method": method})
    assert isinstance(plain, Plan)
    assert isinstance(quantised, Plan)
    assert quantised.weights_bytes == plain.weights_bytes
    assert quantised.notes == (f"weights stored as {method} are loaded as bfloat16",)


def test_fp8_stays_fp8_on_a_gpu_that_has_it() -> None:
    plain, kept = planned("h200", None), planned("h200", FP8)
    assert isinstance(plain, Plan)
    assert isinstance(kept, Plan)
    assert plain.weights_bytes / 2 < kept.weights_bytes < plain.weights_bytes  # embedding and head stay in bfloat16
    assert kept.notes[0].startswith("weights stay in fp8")


@pytest.mark.parametrize("method", ["awq", "gptq", "bitsandbytes", "compressed-tensors", "modelopt", "bitnet", "nvfp4", "made-up"])
def test_weights_that_cannot_be_loaded_are_refused_by_name(method: str) -> None:
    refused = planned("trn2", {"quant_method": method})
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.QUANTIZATION
    assert method in refused.detail


@pytest.mark.parametrize(
    ("quantization", "stored", "method"),
    [
        (None, {}, ""),
        (None, {"BF16": 100, "F32": 3}, ""),
        (None, {"BF16": 100, "I64": 1}, ""),
        (None, {"F8_E4M3": 100, "BF16": 10}, "undeclared"),
        (None, {"I32": 100, "F16": 50}, "undeclared"),
        ({"bits": 4, "group_size": 64}, {}, "mlx"),
        ({"bits": 4, "group_size": 128, "desc_act": False}, {}, "gptq"),
        ({"load_in_4bit": True}, {}, "bitsandbytes"),
        ({"quant_method": "AWQ"}, {}, "awq"),
        ({"quant_algo": "FP8", "quant_method": "modelopt"}, {}, "modelopt"),
        ({"odd": 1}, {}, "undeclared"),
    ],
)
def test_the_method_is_told_from_config_or_stored_dtypes(quantization: dict[str, Any] | None, stored: dict[str, int], method: str) -> None:
    assert method_of(quantization, stored) == method
