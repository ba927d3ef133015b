"""A pod's volumes as folders of this machine, and where its containers see them.

emptyDir, ConfigMap and Secret volumes live in the pod's own folder and go with it; hostPath is the path itself.
A container's mounts are (source, target, is read-only) for the shim, which needs a private mount namespace for them;
a hostPath mounted where it lies anyway needs none, nor does an emptyDir in memory at /dev/shm: that is the machine's.
A mount point that does not exist is made (an empty folder, which stays); where we may not write, the folder around it
is covered by a private mirror. Files of ConfigMaps and Secrets are as they were when the container started. Sizes are
not limited.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .environment import Container, Pod, Source, Unusable, expand

Mount = tuple[str, str, bool]


def make_volumes(pod: Pod, folder: Path, sources: Mapping[tuple[str, str], Source]) -> dict[str, Path]:
    """Volume name → where it is; made if it is not there yet."""
    return {it["name"]: _make(it, folder / it["name"], sources) for it in pod["spec"].get("volumes") or ()}


def mounts(pod: Pod, container: Container, where: Mapping[str, Path], env: Mapping[str, str]) -> list[Mount]:
    """The mounts of a container, outer ones first."""
    in_memory = {it["name"] for it in pod["spec"].get("volumes") or () if (it.get("emptyDir") or {}).get("medium")}
    found = []
    for mount in container.get("volumeMounts") or ():
        if mount["name"] not in where:
            raise Unusable(f"volumeMounts: there is no volume {mount['name']!r}")
        sub = expand(mount["subPathExpr"], env) if mount.get("subPathExpr") else mount.get("subPath", "")
        source, target = _inside(where[mount["name"]], sub), os.path.normpath(mount["mountPath"])
        if str(source) != target and not (target == "/dev/shm" and mount["name"] in in_memory):
            found.append((str(source), target, bool(mount.get("readOnly"))))
    return sorted(found, key=lambda mount: mount[1])


def _inside(folder: Path, sub: str) -> Path:
    if sub.startswith("/") or ".." in Path(sub).parts:
        raise Unusable(f"subPath {sub!r} leaves its volume")
    place = folder / sub
    if not place.exists():
        place.mkdir(parents=True)
    return place


def _make(volume: dict[str, Any], place: Path, sources: Mapping[tuple[str, str], Source]) -> Path:
    if "hostPath" in volume:
        return _host_path(volume["hostPath"])
    if "emptyDir" in volume:
        place.mkdir(parents=True, exist_ok=True)
        return place
    for field, kind, name in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        if field in volume:
            _write(volume[field], (kind, volume[field][name]), place, sources)
            return place
    sort = next((key for key in volume if key != "name"), "none")
    raise Unusable(f"volume {volume['name']!r}: {sort} is not served on this machine, only"
                   " emptyDir, hostPath, configMap and secret are")


def _host_path(asked: dict[str, Any]) -> Path:
    place, sort = Path(asked["path"]), asked.get("type", "")
    if sort == "DirectoryOrCreate":
        place.mkdir(parents=True, exist_ok=True)
    elif sort == "FileOrCreate":
        place.touch()
    wrong = (sort.startswith("Directory") and not place.is_dir()) or (sort.startswith("File") and not place.is_file())
    if wrong or not place.exists():
        raise Unusable(f"hostPath {place}: there is no such {'file' if sort.startswith('File') else 'directory'}")
    return place


def _write(asked: dict[str, Any], key: tuple[str, str], place: Path, sources: Mapping[tuple[str, str], Source]) -> None:
    source = sources.get(key)
    files = source.files if source else None
    if files is None and not asked.get("optional"):
        raise Unusable(f'{key[0].lower()} "{key[1]}" not found')
    items = asked.get("items") or [{"key": name, "path": name} for name in files or {}]
    place.mkdir(parents=True, exist_ok=True)
    for item in items:
        if item["key"] in (files or {}):
            target = _inside(place, str(Path(item["path"]).parent)) / Path(item["path"]).name
            target.unlink(missing_ok=True)
            target.write_bytes((files or {})[item["key"]])
            target.chmod(item.get("mode", asked.get("defaultMode", 0o644)))
        elif not asked.get("optional"):
            raise Unusable(f"references non-existent config key: {item['key']}")
