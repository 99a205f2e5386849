"""What a target must offer: a module with these names is one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from doesitrun.records import Device, Plan
from doesitrun.targets.checks import Checkup
from doesitrun.targets.graph_files import GraphFiles


@dataclass(frozen=True)
class Fragments:
    """A target's own lines of run.py. Lines carry no indentation; the script indents them."""

    backend: str
    """The backend of torch.compile."""
    process_group: str
    """The backend of torch.distributed, for several cores."""
    peak_bytes: str
    """Expression: peak memory of this rank in bytes."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables set before torch is imported, unless the user has set them."""
    environment_extra: tuple[str, ...] = ()
    standard_imports: tuple[str, ...] = ()
    torch_imports: tuple[str, ...] = ()
    functions: str = ""
    """Whole functions, at the top level."""
    rank_setup: tuple[str, ...] = ()
    """What a rank does before it joins its process group; `rank` is its number."""
    run_setup: tuple[str, ...] = ()
    load_arguments: tuple[str, ...] = ()
    experts_implementation: str | None = None
    inputs_on_device: bool = False
    """False leaves the inputs on the CPU: generate() then moves what each forward needs."""
    compile_extra: tuple[str, ...] = ()
    generate_arguments: tuple[str, ...] = ()
    synchronize: tuple[str, ...] = ()
    reset_peak: tuple[str, ...] = ()
    compiled: str = "graphs > 0"
    """Expression: did compiled graphs run? `graphs` is Dynamo's count."""
    cache_folder: str = '""'
    """Expression: the folder that compiled graphs are kept in."""
    cache_pattern: str = "*"
    """Pattern, for pathlib, of the files there that are one compiled graph each."""
    cache_hits: str = "0"
    """Expression: graphs that came from the cache; `known` names the files that were there before."""
    cache_misses: str = "0"
    """Expression: graphs that were compiled."""
    fallbacks: str = "[]"
    """Expression: names of operators that ran elsewhere than on the device."""


@dataclass(frozen=True)
class Detection:
    """What a stack has for a target."""

    device: str
    cores: int
    compiler_version: str
    notes: tuple[str, ...] = ()
    """What is missing or odd, one sentence each."""
    machine: str = ""
    """What compiled graphs are made for, where that is not the device's name; printable, with no `/`."""


class Target(Protocol):
    """A kind of accelerator."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 the names are those of a module's constants

    @property
    def COMPILER(self) -> str:  # noqa: N802
        """The compiler's name, as it names a folder of the dataset."""
        ...

    @property
    def DEVICES(self) -> Mapping[str, Device]: ...  # noqa: N802

    @property
    def REQUIREMENTS(self) -> tuple[str, ...]:  # noqa: N802
        """Distributions that run.py needs."""
        ...

    @property
    def VERSION_COLUMNS(self) -> Mapping[str, str]:  # noqa: N802
        """Columns of a row that hold versions of this target's own distributions: column -> distribution."""
        ...

    @property
    def PIP_INDEXES(self) -> tuple[str, ...]:  # noqa: N802
        """Package indexes that its distributions come from, besides PyPI."""
        ...

    @property
    def CHECKUP(self) -> Checkup:  # noqa: N802
        """What `doctor` asks of an environment, and how it judges that."""
        ...

    @property
    def GRAPHS(self) -> GraphFiles:  # noqa: N802
        """What the compiler leaves in its cache folder."""
        ...

    def environment(self, cache: str) -> dict[str, str]:
        """Variables of the child: compiled graphs go to `cache`, a folder of one compiler version."""
        ...

    @property
    def RESOURCE(self) -> str:  # noqa: N802
        """What Ray calls its cores."""
        ...

    def visible(self, cores: Sequence[int]) -> dict[str, str]:
        """Variables that show a child these cores of the host, and no others."""
        ...

    def detect(self, facts: Mapping[str, Any]) -> Detection | None:
        """What the facts of `instack/probe.py` say of this target; None if it is not there."""
        ...

    def fragments(self, plan: Plan) -> Fragments:
        """The target's own lines of run.py."""
        ...
