"""A pod's volumes as folders of this machine, and where its containers see them.

emptyDir, ConfigMap and Secret volumes live in the pod's own folder and go with it; hostPath is the path itself.
A container's mounts are for the shim, which needs a private mount namespace for them: (source, path in it, target, is
read-only, type of the hostPath or None). A hostPath mounted where it lies anyway needs none, nor does an emptyDir in
memory at /dev/shm: that is the machine's.
A mount point that does not exist is made (an empty folder, which stays); where we may not write, the folder around it
is covered by a private mirror. Files of ConfigMaps and Secrets are as they were when the container started. Sizes are
not limited. Where the pod runs as another user than ours, nothing is made or looked at by a name that the user could
exchange: emptyDirs are the user's, ConfigMaps and Secrets are the user's files in folders of ours, and what is outside
them is left to the shim, which opens it with the user's rights.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairway.api.quantities import shown

from .environment import Container, Pod, Source, Unusable, expand
from .isolation.account import Account

MOST_OF_PATH = 4095
Mount = tuple[str, str, str, bool, str | None]
Sources = Mapping[tuple[str, str], Source]


@dataclass(frozen=True, slots=True)
class Volume:
    """`sort`: the type of a hostPath, None for a folder of ours. `account`: whose rights open what is in it."""

    place: Path
    sort: str | None = None
    account: Account | None = None


def make_volumes(pod: Pod, folder: Path, sources: Sources, account: Account | None = None) -> dict[str, Volume]:
    """Volume name → where it is; made if it is not there yet."""
    made = {}
    for each in pod["spec"].get("volumes") or ():
        with _told(f"volume {each['name']!r}"):
            made[each["name"]] = _volume(each, folder / each["name"], sources, account)
    return made


def mounts(pod: Pod, container: Container, where: Mapping[str, Volume], env: Mapping[str, str]) -> list[Mount]:
    """The mounts of a container, outer ones first."""
    in_memory = {it["name"] for it in pod["spec"].get("volumes") or () if (it.get("emptyDir") or {}).get("medium")}
    found = []
    for mount in container.get("volumeMounts") or ():
        if mount["name"] not in where:
            raise Unusable(f"volumeMounts: there is no volume {mount['name']!r}")
        sub = mount.get("subPath", "")
        if said := mount.get("subPathExpr"):
            sub = expand(said, env, "subPathExpr", MOST_OF_PATH)
        volume, target = where[mount["name"]], os.path.normpath(f"/{mount['mountPath']}")
        if volume.account is None:
            with _told(f"subPath {shown(sub)}"):
                source, sub = _inside(volume.place, sub), ""
        else:
            source, _ = volume.place, _check(sub)
        if not (target == "/dev/shm" and mount["name"] in in_memory):
            found.append((str(source), sub, target, bool(mount.get("readOnly")), volume.sort))
    return sorted(found, key=lambda mount: mount[2])


@contextmanager
def _told(what: str) -> Iterator[None]:
    """What this machine cannot do for `what` is Unusable, so that its user learns of it."""
    try:
        yield
    except OSError as error:
        raise Unusable(f"{what}: {error.strerror or error}") from error


def moved(found: Iterable[Mount]) -> list[Mount]:
    """Those that a process of this machine does not see where they are to be anyway."""
    return [it for it in found if it[0] != it[2]]


def _check(sub: str) -> None:
    if sub.startswith("/") or ".." in Path(sub).parts:
        raise Unusable(f"subPath {sub!r} leaves its volume")


def _inside(folder: Path, sub: str) -> Path:
    _check(sub)
    place = folder / sub
    if not place.exists():
        place.mkdir(parents=True)
    return place


def _volume(volume: dict[str, Any], place: Path, sources: Sources, account: Account | None) -> Volume:
    if "hostPath" in volume and account:
        return Volume(Path(volume["hostPath"]["path"]), volume["hostPath"].get("type") or "", account)
    if "hostPath" in volume:
        return Volume(_host_path(volume["hostPath"]), "")
    _make(volume, place, sources)
    if account:
        _give(place, account, is_folder_theirs="emptyDir" in volume)
    return Volume(place, None, account)


def _give(place: Path, account: Account, *, is_folder_theirs: bool) -> None:
    """An emptyDir is the user's. Of a ConfigMap or Secret only the files are: we write there again, and in a folder of
    its own a user could lead us elsewhere."""
    if is_folder_theirs:
        os.chown(place, account.uid, account.gid)
        return
    place.chmod(0o755)
    for each in place.rglob("*"):
        if each.is_dir():
            each.chmod(0o755)
        else:
            os.chown(each, account.uid, account.gid)


def _make(volume: dict[str, Any], place: Path, sources: Sources) -> None:
    if "emptyDir" in volume:
        place.mkdir(parents=True, exist_ok=True)
        return
    for field, kind, name in (("configMap", "ConfigMap", "name"), ("secret", "Secret", "secretName")):
        if field in volume:
            _write(volume[field], (kind, volume[field][name]), place, sources)
            return
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


def _write(asked: dict[str, Any], key: tuple[str, str], place: Path, sources: Sources) -> None:
    source = sources.get(key)
    files = source.files if source else None
    if files is None and not asked.get("optional"):
        raise Unusable(f'{key[0].lower()} "{key[1]}" not found')
    items = asked.get("items") or [{"key": name, "path": name} for name in files or {}]
    place.mkdir(parents=True, exist_ok=True)
    for item in items:
        if item["key"] in (files or {}):
            _check(item["path"])
            target = _inside(place, str(Path(item["path"]).parent)) / Path(item["path"]).name
            target.unlink(missing_ok=True)
            target.write_bytes((files or {})[item["key"]])
            target.chmod(item.get("mode", asked.get("defaultMode", 0o644)))
        elif not asked.get("optional"):
            raise Unusable(f"references non-existent config key: {item['key']}")
