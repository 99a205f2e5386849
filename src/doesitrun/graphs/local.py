"""The workspace's own graphs: cache folders by version, and the manifests of the plans that were run.

graphs/TARGET/COMPILER/FRAMEWORK/                          a cache folder
graphs/manifests/COMPILER/FRAMEWORK/MACHINE/PLAN ID.json   what a plan used of it
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from doesitrun.files import reaching, write_whole
from doesitrun.graphs.folder import entries_of, is_held
from doesitrun.graphs.manifest import Entry, Manifest, ManifestError, is_plan_id
from doesitrun.graphs.pairs import Pair
from doesitrun.targets import TARGETS


@dataclass(frozen=True)
class LocalGraphs:
    """Graphs below a folder, usually the workspace's `graphs`."""

    root: Path

    def cache(self, pair: Pair) -> Path:
        """The cache folder that the compiler is given. One per compiler and framework version, for keys may not hold these."""
        return self.root / pair.target / pair.compiler / pair.framework

    def notes(self, pair: Pair) -> Path:
        """The folder of the pair's manifests."""
        return self.root / "manifests" / str(pair)

    def lock(self, pair: Pair) -> Path:
        """What runs share while they use the pair's cache folder, and what cleaning holds alone."""
        return self.root / "manifests" / f"{pair.target}+{pair.compiler}+{pair.framework}.lock"

    def pairs(self) -> list[Pair]:
        """Every pair that has a manifest here."""
        with reaching(self.root):
            found = [Pair.parse(str(path.relative_to(self.root / "manifests"))) for path in self.root.glob("manifests/*/*/*")]
        return sorted(pair for pair in found if pair is not None and pair.target in TARGETS)

    def manifests(self, pair: Pair) -> dict[str, Manifest]:
        """The pair's manifests by plan id; one that cannot be read is as good as none: its plan is collected anew when it is run."""
        return dict(self._read(pair))

    def _read(self, pair: Pair) -> Iterator[tuple[str, Manifest]]:
        with reaching(self.notes(pair)):
            for path in sorted(self.notes(pair).glob("*.json")):
                if not is_plan_id(path.stem):
                    continue
                try:
                    yield path.stem, Manifest.loads(path.read_bytes(), path.stem, pair)
                except ManifestError:
                    continue

    def keep(self, manifest: Manifest) -> None:
        """Writes the manifest down. Raises WorkspaceError."""
        folder = self.notes(manifest.pair)
        with reaching(folder):
            folder.mkdir(parents=True, exist_ok=True)
            write_whole(folder / f"{manifest.plan_id}.json", manifest.dumps())

    def known(self, pair: Pair) -> dict[str, Entry]:
        """What the manifests say of the cache folder's entries, by name."""
        return {entry.name: entry for manifest in self.manifests(pair).values() for entry in manifest.entries}

    def sizes(self, pair: Pair) -> dict[str, int]:
        """Bytes of each entry in the cache folder."""
        with reaching(self.cache(pair)):
            return {name: stat.st_size for name, stat in entries_of(self.cache(pair), TARGETS[pair.target].GRAPHS).items()}


def pruned(local: LocalGraphs, keep_pairs: int, *, dry_run: bool = False) -> tuple[list[Pair], list[Pair], int]:
    """The pairs that stay, the pairs whose cache folders and manifests went, and bytes freed. Raises WorkspaceError.

    A cache folder that a run uses at the moment stays, and its pair with it.
    """
    import shutil

    ages = {pair: max((path.stat().st_mtime for path in local.notes(pair).glob("*.json")), default=0.0) for pair in local.pairs()}
    latest = sorted(ages, key=lambda pair: (ages[pair], pair), reverse=True)
    gone = [pair for pair in latest[keep_pairs:] if not is_held(local.lock(pair))]
    kept = [pair for pair in latest if pair not in gone]
    used = {local.cache(pair) for pair in kept}
    freed = 0
    for pair in gone:
        # A cache folder serves every machine of its versions, so it goes with the last of them.
        freed += sum(local.sizes(pair).values()) if local.cache(pair) not in used else 0
        if not dry_run:
            with reaching(local.notes(pair)):
                shutil.rmtree(local.notes(pair))
                if local.cache(pair) not in used and local.cache(pair).exists():
                    shutil.rmtree(local.cache(pair))
    return kept, gone, freed
