"""The address of a Service: one of its own among 127.96.0.0/12, which is this machine's without asking anybody.

It follows from the Service's uid, which no user can choose, or is the next that is free; it stays the Service's for as
long as that lives. A Service may name its address, which no other Service has, in any namespace.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Any
from uuid import UUID

import msgspec

from fairway.embedded.errors import Cause, denied, duplicate, invalid, required, wrong
from fairway.embedded.store import Store

RANGE = ipaddress.ip_network("127.96.0.0/12")
SERVICES = "services"
HEADLESS, EXTERNAL = "None", "ExternalName"
Thing = dict[str, Any]


def complete(service: Thing) -> None:
    """What Kubernetes fills in."""
    spec = service.get("spec")
    if spec is None or spec.get("type") == EXTERNAL:
        return
    for name, value in {"internalTrafficPolicy": "Cluster", "ipFamilyPolicy": "SingleStack"}.items():
        spec.setdefault(name, value)
    spec.setdefault("ipFamilies", ["IPv4"])
    if address := spec.get("clusterIP"):
        spec["clusterIPs"] = [address]


def give(store: Store, service: Thing) -> None:
    """Gives a Service its address, unless it says one, or that it wants none. Invalid where another Service has it."""
    spec, about = service.get("spec") or {}, service["metadata"]
    address = spec.get("clusterIP")
    if not spec or address == HEADLESS or spec.get("type") == EXTERNAL:
        return
    taken = _taken(store)
    if address in taken:
        why = f"failed to allocate IP {address}: provided IP is already allocated; leave it out"
        raise invalid("Service", "", about["name"], causes=[wrong("spec.clusterIPs", [address], why)])
    start, size = UUID(about["uid"]).int, RANGE.num_addresses - 2
    spec["clusterIP"] = address or next(
        it for step in range(size) if (it := str(RANGE[1 + (start + step) % size])) not in taken)
    spec["clusterIPs"] = [spec["clusterIP"]]


def _taken(store: Store) -> set[str]:
    """The addresses of all Services, and of those that are being written."""
    values = [*(it.value for it in store.objects(SERVICES).values()),
              *(it.value for it in store.staged() if it.key.resource == SERVICES)]
    return {address for it in values if (address := (msgspec.json.decode(it).get("spec") or {}).get("clusterIP"))}


def keep(store: Store, service: Thing, old: Thing) -> None:
    """An update that does not name the address leaves it; a Service without one gets it as a new one does."""
    spec, before = service.get("spec") or {}, (old.get("spec") or {}).get("clusterIP")
    if spec.get("type") == EXTERNAL:
        spec.pop("clusterIP", None)
    elif not before:
        give(store, service)
    elif not spec.get("clusterIP"):
        spec["clusterIP"] = before


def faults(service: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Cause]:
    spec, before = service.get("spec") or {}, old.get("spec") or {}
    if spec == before:
        return
    address, ports = spec.get("clusterIP"), spec.get("ports") or ()
    if before.get("clusterIP") and address and address != before["clusterIP"]:
        yield wrong("spec.clusterIPs[0]", address, "may not change once set")
    elif address not in (None, HEADLESS) and not _is_ours(address):
        yield wrong("spec.clusterIPs", [address], f"the provided IP is not in the valid range: the range of valid IPs "
                    f"is {RANGE}; leave it out")
    if address and spec.get("type") == EXTERNAL:
        yield denied("spec.clusterIPs", "may not be set for ExternalName services")
    if not ports and address != HEADLESS and spec.get("type") != EXTERNAL:
        yield required("spec.ports")
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"spec.ports[{index}]", port.get("name", "")
        if not 0 < port.get("port", 0) < 1 << 16:
            yield wrong(f"{path}.port", port.get("port"), "must be between 1 and 65535, inclusive")
        if len(ports) > 1 and not name:
            yield required(f"{path}.name")
        elif name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _is_ours(address: str) -> bool:
    try:
        return ipaddress.ip_address(address) in RANGE
    except ValueError:
        return False
