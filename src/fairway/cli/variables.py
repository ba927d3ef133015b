"""The environment of a submitted program, kept in a Secret that its Job owns.

On the cluster of this machine the program gets all variables of the shell that submits it, but for those of `LEFT`,
which describe that shell or an outer job. On another cluster it gets what --env names. The values are never written
into the Job.

The Secret is made before the Job, so that no pod ever starts without its environment, and is given to the Job right
after. A submitter that dies in between leaves a Secret with the label `UNOWNED`: the next submission gives it to its
Job, or deletes it where there is none.
"""

import base64
import os
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from fairway.api.scalars import time
from fairway.kube.client import Client, unless_absent
from fairway.kube.kinds import JOBS, SECRETS, Ref, Selection

from .connect import allowed
from .main import Problem

UNOWNED = "fairway.dev/unowned-environment-of"
LEFT = re.compile(
    r"PWD|OLDPWD|SHLVL|_|COLUMNS|LINES|HOSTNAME|((LOCAL|GROUP|ROLE)_)?(RANK|WORLD_SIZE)|MASTER_(ADDR|PORT)|"
    r"JOB_COMPLETION_INDEX|(CUDA|NVIDIA)_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|"
    r"(FAIRWAY|SLURM|SBATCH|SRUN|TORCHELASTIC|PET)_.*"
)
"""Variables that describe the shell that submits, or the job it runs in, and not the program to come."""

NAME = re.compile(r"[-._a-zA-Z0-9]{1,253}")
MOST_BYTES = 1 << 20
STALE_SECONDS = 60.0


def variables(order: SimpleNamespace, *, is_process: bool) -> dict[str, str]:
    """What the program gets, by name."""
    only = _words(order.env_only) if order.env_only else None
    kept = {name: _set_here("--env-only", name) for name in only or ()}
    if only is None and is_process and not order.file:
        kept = {name: it for name, it in os.environ.items() if not LEFT.fullmatch(name) and NAME.fullmatch(name)}
    for item in order.env:
        name, given, value = item.partition("=")
        kept[name] = value if given else _set_here("--env", name)
    for name in kept:
        if not NAME.fullmatch(name) or name[0] in "0123456789":
            raise Problem(f"--env: {name!r} is no name of a variable; letters, digits, - . and _ are allowed")
    return _bounded(kept)


def _words(texts: tuple[str, ...]) -> list[str]:
    return [word for text in texts for word in text.replace(",", " ").split()]


def _set_here(option: str, name: str) -> str:
    if name not in os.environ:
        raise Problem(f"{option}: {name} is not set here; give it a value: --env {name}=…")
    return os.environ[name]


def _bounded(kept: dict[str, str]) -> dict[str, str]:
    sizes = {name: len(name) + len(os.fsencode(value)) for name, value in kept.items()}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda name: sizes[name])
        found = f"the environment has {sum(sizes.values())} bytes ({largest} alone {sizes[largest]})"
        raise Problem(f"{found}; a Secret holds {MOST_BYTES}: name the variables it needs with --env-only", exit_code=1)
    return kept


def refer(template: dict[str, Any], secret: str) -> None:
    """Has every container of a pod template read the Secret; what the container sets itself counts more."""
    for container in template["spec"]["containers"]:
        container["envFrom"] = [*(container.get("envFrom") or ()), {"secretRef": {"name": secret}}]


async def keep(client: Client, owner: Ref, values: Mapping[str, str | bytes], word: str = "env") -> Ref:
    """Makes the Secret of a Job or Pod that is about to be made, and returns where it is. `word`: what it holds."""
    data = {name: base64.b64encode(os.fsencode(value)).decode() for name, value in values.items()}
    stem = re.sub(r"[^a-z0-9]+", "-", owner.name.lower()).strip("-")[:40]
    meta = {"generateName": f"{stem}-{word}-", "labels": {UNOWNED: "true"}, "annotations": {UNOWNED: owner.name}}
    made = await client.create(SECRETS, {"metadata": meta, "data": data}, namespace=owner.namespace)
    return Ref(SECRETS, made["metadata"]["name"], owner.namespace)


async def give(client: Client, secret: Ref, owner: Ref, uid: str) -> None:
    """The Secret goes with its owner from now on."""
    reference = {"apiVersion": owner.kind.group_version, "kind": owner.kind.name, "name": owner.name, "uid": uid}
    change = {"metadata": {"ownerReferences": [reference], "labels": {UNOWNED: None}, "annotations": {UNOWNED: None}}}
    await client.patch(secret, change)


async def sweep(client: Client, namespace: str) -> None:
    """Gives Secrets that a killed submitter left to their Jobs, and deletes those whose Job was never made."""
    for one in await allowed(client.list(Selection(SECRETS, namespace, labels=UNOWNED))) or ():
        meta = one["metadata"]
        if time(meta["creationTimestamp"]) + STALE_SECONDS < client.clock.now():
            await _settle(client, Ref(SECRETS, meta["name"], namespace), meta["annotations"][UNOWNED])


async def _settle(client: Client, secret: Ref, name: str) -> None:
    job = Ref(JOBS, name, secret.namespace)
    found = await client.find(job)
    if found and secret.name in _secrets_of(found["spec"]["template"]):
        await unless_absent(give(client, secret, job, found["metadata"]["uid"]))
    else:
        await client.delete(secret)


def _secrets_of(template: dict[str, Any]) -> set[str]:
    sources = [it for container in template["spec"]["containers"] for it in container.get("envFrom") or ()]
    mounted = {it["secret"]["secretName"] for it in template["spec"].get("volumes") or () if "secret" in it}
    return mounted | {it["secretRef"]["name"] for it in sources if "secretRef" in it}
