"""What quantised weights become when they are loaded, per method and target; pure.

From transformers 5.24.0 (quantizers/*.py, `validate_environment`): what a method needs, and where it falls back to
dequantising. The stacks carry no kernel packages, so what needs one cannot be loaded. Trainium2 has only a non-OCP fp8
(Neuron SDK, NCC_EVRF051), and no integer or 4-bit matrix products: there everything must become bfloat16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from doesitrun.plan.outlines import Outline, Parameter
from doesitrun.records import Device

DEQUANTISED = frozenset({"fp8", "mxfp8", "mxfp4", "metal"})
"""Methods that transformers itself turns back into the plan's dtype where there are no kernels for them."""
PACKAGES = {
    "awq": "gptqmodel",
    "gptq": "gptqmodel and optimum",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "aqlm": "aqlm",
    "auto-round": "auto-round",
    "bitnet": "BitNet kernels for its packed ternary weights",
    "eetq": "eetq",
    "fbgemm_fp8": "fbgemm-gpu",
    "gguf": "gguf",
    "higgs": "flute",
    "hqq": "hqq",
    "quanto": "optimum-quanto",
    "quark": "amd-quark",
    "spqr": "spqr_quant",
    "torchao": "torchao",
    "vptq": "vptq",
    "modelopt": "NVIDIA's ModelOpt runtime",
    "nvfp4": "a Blackwell GPU and the kernels package",
    "mlx": "Apple's MLX",
}
# Dtypes by which stored tensors give quantisation away, where no config speaks of it.
_TELLTALE_DTYPES = frozenset({"F8_E4M3", "F8_E5M2", "F8_E8M0", "F4", "F6_E2M3", "F6_E3M2", "U8", "I8", "I32", "U32"})
_FP8_BLOCK_ELEMENTS = 128 * 128


@dataclass(frozen=True)
class Loading:
    """What becomes of quantised weights: `method` as stored ("" for none), and whether they keep it on the device."""

    method: str = ""
    kept: bool = False
    refusal: str = ""
    """Why they cannot be loaded; empty if they can."""

    def nbytes(self, parameter: Parameter, elements: int) -> int:
        """Bytes of `elements` elements of a parameter once loaded."""
        if self.kept and parameter.quantizable:
            return elements + 4 * -(-elements // _FP8_BLOCK_ELEMENTS)  # one byte each, and a float32 scale a block
        return elements * parameter.itemsize


def method_of(quantization: Mapping[str, Any] | None, stored: Mapping[str, int]) -> str:
    """The quantisation method in one word; "" for none, "undeclared" where only the stored dtypes tell."""
    if quantization:
        return _declared(quantization)
    total = sum(stored.values())
    odd = sum(count for dtype, count in stored.items() if dtype in _TELLTALE_DTYPES)
    return "undeclared" if total and odd > total * 0.05 else ""


def _declared(quantization: Mapping[str, Any]) -> str:
    method = str(quantization.get("quant_method") or quantization.get("quant_algo") or "").lower()
    if not method and (quantization.get("load_in_4bit") or quantization.get("load_in_8bit")):
        return "bitsandbytes"
    if not method and {"bits", "group_size"} <= quantization.keys():
        return "gptq" if quantization.keys() & {"desc_act", "damp_percent", "sym"} else "mlx"
    return method or "undeclared"


def loading(quantization: Mapping[str, Any] | None, stored: Mapping[str, int], device: Device, outline: Outline) -> Loading:
    """What a stack makes of a checkpoint's weights on a device."""
    method = method_of(quantization, stored)
    if not method:
        return Loading()
    if method in device.kept_quantization:
        return Loading(method, kept=True)
    if method in DEQUANTISED:
        return Loading(method)
    return Loading(method, refusal=_why_not(method, device.target, outline))


def _why_not(method: str, target: str, outline: Outline) -> str:
    if method == "undeclared":
        return "Its weights are stored quantised, but its config does not say by which method, so they cannot be loaded."
    need = PACKAGES.get(method)
    if need is None:
        return f"Its weights are quantised with {method!r}, which {outline.library} cannot load on {target}."
    return f"Its weights are quantised with {method}, which needs {need} and is not turned back into plain weights on {target}."
