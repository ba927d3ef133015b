"""GPUs of AMD and Intel: found in a tree as the kernel shows it, offered, given to containers and measured."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairway.cli.job import of_maker
from fairway.node.cards import AMD, I915, XE, Card, Dealer, cards
from fairway.node.environment import Unusable
from fairway.node.machine import Machine, node_of


def card(root: Path, number: int, address: str, driver: str, **files: str) -> None:
    """A card as the kernel shows it: its device, its render node and its driver are links."""
    device, drivers = root / "devices" / address, root / "bus" / driver
    (device / "drm" / f"renderD{128 + number}").mkdir(parents=True)
    drivers.mkdir(parents=True, exist_ok=True)
    (device / "driver").symlink_to(drivers)
    for name, text in files.items():
        (device / name).write_text(f"{text}\n")
    place = root / "class" / "drm" / f"card{number}"
    place.mkdir(parents=True)
    (place / "device").symlink_to(device)
    (place.parent / f"card{number}-DP-1").mkdir()
    (place.parent / f"card{number}-DP-1" / "device").symlink_to(device)


def compute(root: Path, number: int, minor: int, name: str) -> None:
    place = root / "class" / "kfd" / "kfd" / "topology" / "nodes" / str(number)
    place.mkdir(parents=True)
    (place / "name").write_text(f"{name}\n")
    simds = 1216 if minor else 0
    (place / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\ndrm_render_minor {minor}\n")


def two_of_amd(root: Path) -> None:
    facts = {"vendor": "0x1002", "device": "0x74a1", "mem_info_vram_total": str(192 << 30)}
    card(root, 0, "0000:03:00.0", "amdgpu", **facts, numa_node="0", gpu_busy_percent="0")
    card(root, 1, "0000:c1:00.0", "amdgpu", **facts, numa_node="1", gpu_busy_percent="97",
         product_name="AMD Instinct MI300X OAM")  # fmt: skip
    card(root, 2, "0000:e1:00.0", "amdgpu", vendor="0x1002", device="0x1636")  # draws, and computes nothing
    compute(root, 0, 0, "")  # the processor
    compute(root, 1, 129, "gfx942")
    compute(root, 2, 128, "gfx942")


def test_cards_of_amd_are_numbered_as_rocm_numbers_them(tmp_path: Path) -> None:
    two_of_amd(tmp_path)
    found = cards(tmp_path)
    assert [(it.resource, it.index, it.uuid, it.model, it.memory, it.numa) for it in found] == [
        (AMD, 0, "0000:c1:00.0", "AMD Instinct MI300X OAM", 192 << 30, 1),
        (AMD, 1, "0000:03:00.0", "gfx942", 192 << 30, 0),
    ]
    assert [it.percent for it in found] == [97, 0]


def test_cards_of_intel_go_by_their_driver_and_their_address(tmp_path: Path) -> None:
    for number, address, driver in ((0, "0000:8c:00.0", "xe"), (1, "0000:1b:00.0", "xe"), (2, "0000:00:02.0", "i915")):
        card(tmp_path, number, address, driver, vendor="0x8086", device="0x0bd5", numa_node="-1")
    tile = tmp_path / "devices" / "0000:8c:00.0" / "tile0"
    tile.mkdir()
    (tile / "physical_vram_size_bytes").write_text(hex(16 << 30))
    found = cards(tmp_path)
    assert [(it.resource, it.index, it.uuid, it.memory) for it in found] == [
        (I915, 0, "0000:00:02.0", 0), (XE, 0, "0000:1b:00.0", 0), (XE, 1, "0000:8c:00.0", 16 << 30),
    ]  # fmt: skip
    assert found[0].percent is None and found[0].model == "Intel 0x0bd5"


def test_a_machine_without_such_cards_or_with_other_makers_has_none(tmp_path: Path) -> None:
    assert cards(tmp_path) == ()
    card(tmp_path, 0, "0000:01:00.0", "nouveau", vendor="0x10de", device="0x2204")
    assert cards(tmp_path) == ()


def test_a_node_offers_its_cards_beside_its_other_gpus(tmp_path: Path) -> None:
    two_of_amd(tmp_path)
    made = node_of(Machine("here", 4000, 8 << 30, 100 << 30, cards=cards(tmp_path)), 0.0)
    assert made["status"]["allocatable"][AMD] == "2" and "nvidia.com/gpu" not in made["status"]["capacity"]
    assert made["metadata"]["labels"][f"{AMD}.product-name"] == "AMD-Instinct-MI300X-OAM"
    said = json.loads(made["metadata"]["annotations"]["fairway.dev/cards"])
    assert said[1]["address"] == "0000:03:00.0" and said[1]["memory"] == 192 << 30


FOUR = tuple(Card(AMD, index, f"0000:0{index}:00.0", "gfx942", numa=index // 2) for index in range(4))


def pod(uid: str) -> dict[str, Any]:
    return {"metadata": {"uid": uid}}


def container(count: int, resource: str = AMD, name: str = "main") -> dict[str, Any]:
    return {"name": name, "resources": {"limits": {resource: str(count)}}}


def test_no_card_is_given_twice_and_those_of_a_pod_that_is_over_are_given_again(tmp_path: Path) -> None:
    dealer = Dealer(FOUR, tmp_path)
    first = dealer.environment(pod("a"), container(1), ())
    second = Dealer(FOUR, tmp_path).environment(pod("b"), container(2), ())  # another life
    assert (first["ROCR_VISIBLE_DEVICES"], second["ROCR_VISIBLE_DEVICES"]) == ("0", "2,3")
    assert second["HIP_VISIBLE_DEVICES"] == "0,1"
    assert dealer.environment(pod("a"), container(1), ()) == first
    with pytest.raises(Unusable, match=r"needs 2 amd\.com/gpu; 1 are free"):
        dealer.environment(pod("c"), container(2), ())
    assert dealer.environment(pod("c"), container(2), ("b",))["ROCR_VISIBLE_DEVICES"] == "2,3"
    assert [it.index for it in dealer.of("c")] == [2, 3]


def test_the_device_files_of_others_are_hidden(tmp_path: Path) -> None:
    two_of_amd(tmp_path / "sys")
    dealer = Dealer(cards(tmp_path / "sys"), tmp_path)
    dealer.environment(pod("a"), container(1), ())
    dealer.environment(pod("b"), container(0), ())
    assert dealer.hidden(pod("a"), container(1)) == ["/dev/dri/renderD128"]
    assert dealer.hidden(pod("b"), container(0)) == ["/dev/dri/renderD129", "/dev/dri/renderD128", "/dev/kfd"]


def test_a_container_without_cards_sees_none_of_amd(tmp_path: Path) -> None:
    dealer = Dealer(FOUR, tmp_path)
    assert dealer.environment(pod("a"), {"name": "main"}, ())["ROCR_VISIBLE_DEVICES"] == ""
    assert Dealer((), tmp_path).environment(pod("a"), {"name": "main"}, ()) == {}


def test_cards_of_intel_are_named_by_their_mask(tmp_path: Path) -> None:
    dealer = Dealer(tuple(Card(XE, index, f"0000:0{index}:00.0", "Intel") for index in range(2)), tmp_path)
    dealer.environment(pod("a"), container(1, XE), ())
    said = dealer.environment(pod("b"), container(1, XE), ())
    assert said == {"ZE_AFFINITY_MASK": "1", "ZE_ENABLE_PCI_ID_DEVICE_ORDER": "1"}


def test_gpus_of_a_submission_are_those_of_the_one_maker_there_is() -> None:
    def asked(*resources: str) -> dict[str, str]:
        template = {"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]}}
        of_maker(template, [{"status": {"allocatable": dict.fromkeys(resources, "8")}}])
        return template["spec"]["containers"][0]["resources"]["limits"]

    assert asked(AMD) == {AMD: "2"} and asked("cpu") == {"nvidia.com/gpu": "2"}
    assert asked(AMD, "nvidia.com/gpu") == asked(AMD, XE) == {"nvidia.com/gpu": "2"}
