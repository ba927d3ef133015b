"""GPUs of AMD and Intel on this machine, as the kernel shows them, and which container has which.

A card is found under /sys/class/drm (its driver, PCI address, NUMA node and render node). One of AMD computes if the
kernel driver for that (KFD) has it too, and is numbered in KFD's order, as ROCm does; those of Intel are numbered by
PCI address. Fairway's scheduler counts them (`amd.com/gpu`, `gpu.intel.com/xe`, `gpu.intel.com/i915`); which ones a
container gets is chosen here, when it starts, as a device plugin does: the first that are free, of one NUMA node if
these are enough. What was given is a file in the pod's folder, so it outlives this process; it is free when the pod is
over, or its folder is gone. The container finds its cards named in its environment.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api.quantities import exact

from .draft import write_whole
from .environment import Container, Pod, Unusable

AMD, XE, I915 = "amd.com/gpu", "gpu.intel.com/xe", "gpu.intel.com/i915"
RESOURCES = (AMD, XE, I915)
VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}
KFD = "/dev/kfd"
GIVEN = "cards"
"""The file of what a pod has: by container and resource, numbers of cards."""


@dataclass(frozen=True, slots=True)
class Card:
    """`index`: its number among those of its resource. `memory`: bytes of its own, 0 of one that uses the machine's.
    `numa`: -1: none or unknown. `uuid`: its PCI address, by which clusters keep out of each other's way;
    `file`: the device file by which a process reaches it."""

    resource: str
    index: int
    uuid: str
    model: str
    memory: int = 0
    numa: int = -1
    folder: Path = Path()
    file: str = ""

    @property
    def percent(self) -> int | None:
        """How busy it is now; None where its driver does not tell."""
        said = _read(self.folder / "gpu_busy_percent")
        return int(said) if said.isdecimal() else None


def cards(root: Path = Path("/sys")) -> tuple[Card, ...]:
    """Those that compute, by resource and number."""
    ranks = _kfd(root / "class" / "kfd" / "kfd" / "topology" / "nodes")
    found = []
    for place in sorted((root / "class" / "drm").glob("card*/device")):
        vendor, minor = VENDORS.get(_read(place / "vendor")), _render(place)
        if "-" in place.parent.name or vendor is None or minor < 0 or (vendor == "AMD" and minor not in ranks):
            continue  # a connector, another maker's, or one that only draws
        address, driver = place.resolve().name, (place / "driver").resolve().name
        resource = AMD if vendor == "AMD" else XE if driver == "xe" else I915
        rank = ranks.get(minor, ("", 0))
        key = (resource, rank[1], address)
        model = _read(place / "product_name") or rank[0] or f"{vendor} {_read(place / 'device')}"
        numa = _read(place / "numa_node")
        found.append((key, address, model, _memory(place), int(numa) if numa.lstrip("-").isdecimal() else -1,
                      place, f"/dev/dri/renderD{minor}"))  # fmt: skip
    found.sort(key=lambda it: it[0])
    made: list[Card] = []
    for (resource, *_), *facts in found:
        index = sum(it.resource == resource for it in made)
        made.append(Card(resource, index, *facts))
    return tuple(made)


def _read(path: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return path.read_text().strip()
    return ""


def _kfd(nodes: Path) -> dict[int, tuple[str, int]]:
    """By the minor number of its render node, the name and the number of each GPU that computes."""
    found: dict[int, tuple[str, int]] = {}
    for place in sorted(nodes.glob("[0-9]*"), key=lambda it: int(it.name)):
        words = dict(line.split(maxsplit=1) for line in _read(place / "properties").splitlines() if " " in line)
        if int(words.get("simd_count", 0)) and int(words.get("drm_render_minor", 0)):
            found[int(words["drm_render_minor"])] = _read(place / "name"), len(found)
    return found


def _render(place: Path) -> int:
    """The minor number of a card's render node; -1 of one without."""
    names = [it.name.removeprefix("renderD") for it in place.glob("drm/renderD*")]
    return min((int(it) for it in names if it.isdecimal()), default=-1)


def _memory(place: Path) -> int:
    """Of AMD's driver, else the sum of the tiles of Intel's."""
    own = [_read(place / "mem_info_vram_total"), _read(place.parent / "lmem_total_bytes")]
    tiles = [_read(it) for it in place.glob("tile*/physical_vram_size_bytes")]
    whole = sum(int(it, 0) for it in tiles if it)
    return next((int(it) for it in own if it.isdecimal()), whole)


def capacity_of(found: Iterable[Card]) -> dict[str, str]:
    counts: dict[str, int] = {}
    for card in found:
        counts[card.resource] = counts.get(card.resource, 0) + 1
    return {resource: str(count) for resource, count in counts.items()}


def labels_of(found: Sequence[Card]) -> dict[str, str]:
    """What a node says of its AMD cards, as AMD's labeller does."""
    own = [card for card in found if card.resource == AMD]
    if not own:
        return {}
    product = "".join(it if it.isalnum() or it in "_.-" else "-" for it in own[0].model).strip("-_.")[:63]
    return {f"{AMD}.product-name": product, f"{AMD}.vram": f"{min(it.memory for it in own) >> 30}G"}


def asked(container: Container) -> dict[str, int]:
    """How many cards of each resource it asks for."""
    resources = container.get("resources") or {}
    said = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: count for name in RESOURCES if (count := int(exact(str(said.get(name, "0")))))}


@dataclass(frozen=True, slots=True)
class Dealer:
    """Gives the cards of this machine to containers. `folder`: of all pods."""

    cards: Sequence[Card]
    folder: Path

    def environment(self, pod: Pod, container: Container, over: Iterable[str]) -> dict[str, str]:
        """The variables that name its cards, which it has from now on. `over`: uids of pods that hold none any more.
        Raises Unusable while too few are free."""
        if not self.cards:
            return {}
        own = self.folder / pod["metadata"]["uid"]
        given = _given(own)
        if (mine := given.get(container["name"])) is None:
            mine = {name: self._free(name, count, over) for name, count in asked(container).items()}
            own.mkdir(mode=0o700, exist_ok=True)
            write_whole(own / GIVEN, json.dumps({**given, container["name"]: mine}).encode())
        return variables(mine, {card.resource for card in self.cards})

    def _free(self, resource: str, count: int, over: Iterable[str]) -> list[int]:
        gone = set(over)
        held = {index for place in self.folder.glob(f"*/{GIVEN}") if place.parent.name not in gone
                for one in _given(place.parent).values() for index in one.get(resource, ())}  # fmt: skip
        free = [card for card in self.cards if card.resource == resource and card.index not in held]
        if len(free) < count:
            raise Unusable(f"needs {count} {resource}; {len(free)} are free until a pod that ends has ended")
        groups = [[it for it in free if it.numa == numa] for numa in dict.fromkeys(it.numa for it in free)]
        best = min((it for it in groups if len(it) >= count), key=len, default=free)
        return [card.index for card in best[:count]]

    def hidden(self, pod: Pod, container: Container) -> list[str]:
        """The device files of cards that a container does not have."""
        mine = _given(self.folder / pod["metadata"]["uid"]).get(container["name"], {}) if self.cards else {}
        others = [card.file for card in self.cards if card.index not in mine.get(card.resource, ())]
        return others + [KFD] * (not mine.get(AMD) and any(card.resource == AMD for card in self.cards))

    def of(self, uid: str) -> list[Card]:
        """The cards that a pod has."""
        given = _given(self.folder / uid) if self.cards else {}
        own = {(name, index) for one in given.values() for name in one for index in one[name]}
        return [card for card in self.cards if (card.resource, card.index) in own]


def _given(own: Path) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, list[int]]] = json.loads(_read(own / GIVEN) or "{}")
    return found


def variables(mine: Mapping[str, Sequence[int]], there: Iterable[str]) -> dict[str, str]:
    """`there`: the resources of the machine; a container without cards of AMD sees none. HIP counts what ROCm shows;
    Intel's mask has no word for none."""
    found: dict[str, str] = {}
    if AMD in there:
        own = mine.get(AMD, ())
        found["ROCR_VISIBLE_DEVICES"] = ",".join(map(str, own))
        found["HIP_VISIBLE_DEVICES"] = ",".join(map(str, range(len(own))))
    if intel := mine.get(XE) or mine.get(I915):
        found["ZE_AFFINITY_MASK"] = ",".join(map(str, intel))
        found["ZE_ENABLE_PCI_ID_DEVICE_ORDER"] = "1"
    return found


def notes_of(found: Iterable[Card]) -> list[dict[str, Any]]:
    """What a node says of its cards."""
    return [{"resource": it.resource, "index": it.index, "address": it.uuid, "model": it.model, "memory": it.memory,
             "numa": it.numa} for it in found]  # fmt: skip
