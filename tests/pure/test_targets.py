"""What each target makes of a machine's plain facts."""

from __future__ import annotations

from typing import Any

import pytest

from doesitrun.targets import DEVICES, TARGETS

BARE: dict[str, Any] = {
    "python": "3.12.1",
    "os": "Ubuntu 26.04, glibc 2.43",
    "cpu_count": 8,
    "host_memory_bytes": 2**35,
    "distributions": {"torch": "2.13.0+cpu", "transformers": "5.24.0"},
    "device_files": [],
    "gpus": [],
    "kernel_modules": {},
    "product": "",
}
NEURON = {"torch": "2.14.0", "torch-neuronx": "2.14.3.0.1", "neuronx-cc": "2.28.7631.0+abc", "transformers": "5.24.0"}


def facts(**changes: Any) -> dict[str, Any]:
    return {**BARE, **changes}


def test_every_machine_with_torch_is_a_cpu_target() -> None:
    found = TARGETS["cpu"].detect(facts())
    assert found is not None
    assert (found.device, found.cores, found.compiler_version) == ("cpu", 8, "2.13.0")


@pytest.mark.parametrize("target", TARGETS)
def test_a_python_without_torch_has_no_target(target: str) -> None:
    assert TARGETS[target].detect(facts(distributions={}, gpus=["NVIDIA H200"], device_files=["/dev/neuron0"])) is None


@pytest.mark.parametrize(("chips", "device", "cores"), [(1, "trn2.3xlarge", 4), (16, "trn2", 64)])
def test_chips_become_logical_cores(chips: int, device: str, cores: int) -> None:
    found = TARGETS["neuron"].detect(facts(distributions=NEURON, device_files=[f"/dev/neuron{i}" for i in range(chips)]))
    assert found is not None
    assert (found.device, found.cores, found.compiler_version, found.notes) == (device, cores, "2.28.7631.0+abc", ())


def test_minor_versions_that_do_not_fit_are_said() -> None:
    found = TARGETS["neuron"].detect(facts(distributions={**NEURON, "torch": "2.13.0"}, device_files=["/dev/neuron0"]))
    assert found is not None
    assert "do not fit" in found.notes[0]


def test_an_emulated_device_says_that_it_is_none() -> None:
    found = TARGETS["neuron"].detect(facts(distributions={**NEURON, "torch-neuronx": "2.14.0+emulated"}))
    assert found is not None
    assert any("emulated" in note for note in found.notes)


def test_a_package_without_a_device_is_no_target() -> None:
    assert TARGETS["neuron"].detect(facts(distributions=NEURON)) is None


@pytest.mark.parametrize(
    ("model", "device"), [("NVIDIA H200", "h200"), ("NVIDIA A100-SXM4-80GB", "a100"), ("Tesla T4", "t4"), ("Other", "")]
)
def test_a_gpu_is_known_by_the_drivers_name(model: str, device: str) -> None:
    found = TARGETS["cuda"].detect(facts(gpus=[model, model], distributions={"torch": "2.13.0+cu130"}))
    assert found is not None
    assert (found.device, found.cores, found.compiler_version) == (device, 2, "2.13.0")


def test_a_cpu_build_of_torch_beside_a_gpu_is_said() -> None:
    found = TARGETS["cuda"].detect(facts(gpus=["NVIDIA H200"]))
    assert found is not None
    assert "CPU build" in found.notes[-1]


def test_device_names_are_unique_and_their_sizes_ascend() -> None:
    assert sum(len(target.DEVICES) for target in TARGETS.values()) == len(DEVICES)
    for name, device in DEVICES.items():
        assert (device.name, device.target in TARGETS) == (name, True)
        assert list(device.sizes) == sorted(set(device.sizes))
        assert device.sizes[0] == 1
        assert 0 <= device.headroom < 1


@pytest.mark.parametrize(
    ("target", "resource", "variables"),
    [
        ("neuron", "neuron_cores", {"NEURON_RT_VISIBLE_CORES": "4,5,6,7"}),
        ("cuda", "GPU", {"CUDA_VISIBLE_DEVICES": "4,5,6,7"}),
        ("cpu", "CPU", {}),
    ],
)
def test_a_child_is_shown_the_cores_that_are_its_own(target: str, resource: str, variables: dict[str, str]) -> None:
    assert TARGETS[target].visible(range(4, 8)) == variables
    assert resource == TARGETS[target].RESOURCE
