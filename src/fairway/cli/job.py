"""The Job that a submission makes: a new one for a program, or the user's own with the given options added.

Both go the same way: `amend` writes options into an object and returns what it changed. A new Job is an empty one with
the defaults given.
"""

import os
import re
import unicodedata
from collections.abc import Sequence
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from fairway.api.names import ON_THIS_MACHINE
from fairway.api.scalars import Malformed, duration, exact, time, time_text
from fairway.kube.kinds import JOBS, PODS, Kind

from .listing import GPU, OTHER_MAKERS
from .main import Problem, is_text, told

Thing = dict[str, Any]
HERE = ON_THIS_MACHINE
"""The image of a Job that runs as a process of this machine; no registry has it."""

LONGEST_NAME, LEAST_BYTES = 63, 1 << 20
INDEX_FIELD = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where a pod finds its number in an Indexed Job."""
DEFAULTS = {"workers": 1, "cpus": "1", "retries": 0}
NOTES = {
    "kind": "workload-type", "min_workers": "min-count", "elastic": "elastic", "time_limit": "time-limit",
    "deadline": "deadline", "checkpoint_interval": "checkpoint-interval", "expected_runtime": "expected-runtime",
    "preemptible": "preemptible", "idle_timeout": "idle-timeout",
    "topology": "topology-required", "after": "after", "notify": "notify",
}  # fmt: skip
"""Option → the annotation of the Job that says it."""


def new_job(order: SimpleNamespace, name: str, argv: list[str], *, is_process: bool) -> Thing:
    """A Job that runs a program, without the options."""
    container: Thing = {"name": "main", "image": order.image or HERE, "command": [literal(word) for word in argv]}
    if is_process:
        try:
            container["workingDir"] = os.path.abspath(order.chdir or ".")
        except FileNotFoundError as error:
            raise Problem("--chdir: the folder you are in is deleted; go to another, or name one") from error
        if not is_text(container["workingDir"]):
            raise Problem("--chdir: the name of the folder you are in is not UTF-8; go to another, or name one")
    elif order.chdir:
        container["workingDir"] = order.chdir
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    spec = {"suspend": True, "completionMode": "NonIndexed", "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def literal(text: str) -> str:
    """Written so that nothing in it is expanded: `$$` is a dollar."""
    return text.replace("$", "$$")


def stem(command: tuple[str, ...]) -> str:
    """A name from the program: the script where an interpreter runs one."""
    script = next((it for it in command[1:] if re.search(r"\.(py|sh|jl|r)$", it)), command[0])
    return _plain(os.path.splitext(os.path.basename(script))[0])[:40].rstrip("-") or "job"


def check_name(name: str) -> None:
    """A Problem where a Job cannot have the name, with the nearest that it can have."""
    if len(name) > LONGEST_NAME or not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", name) or ".." in name:
        near = _plain(name)[:LONGEST_NAME].rstrip("-") or "job"
        rule = f"small letters, digits and '-', at most {LONGEST_NAME}, the first and the last no '-'"
        raise Problem(f"--name: {name!r} is no name for a job: {rule}; {near!r} would do")


def _plain(text: str) -> str:
    """As small letters without accents, digits and '-'."""
    letters = "".join(it for it in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(it))
    return re.sub(r"[^a-z0-9]+", "-", letters).strip("-")


def amend(thing: Thing, order: SimpleNamespace) -> list[str]:
    """Writes the options that are given into a Job, a Pod or another owner; returns each as `option=value`."""
    meta, kind = thing.setdefault("metadata", {}), thing["kind"]
    template = template_of(thing)
    changes: list[str] = []
    if order.queue:
        meta.setdefault("labels", {})["fairway.dev/queue"] = order.queue
        changes.append(f"queue={order.queue}")
    if order.labels:
        meta.setdefault("labels", {}).update(it.split("=", 1) for it in order.labels)
        changes += [f"label={it}" for it in order.labels]
    notes = {name: text for name in NOTES if (text := _note(getattr(order, name)))}
    if notes:
        meta.setdefault("annotations", {}).update({f"fairway.dev/{NOTES[name]}": text for name, text in notes.items()})
        changes += [f"{_option(name)}={text}" for name, text in notes.items()]
    for name, write in (_OF_JOBS if kind == "Job" else {}).items():
        if (value := getattr(order, name)) is not None:
            write(thing["spec"], value)
            changes.append(f"{_option(name)}={_note(value)}")
    for name, write in (_OF_PODS if template else {}).items():
        if value := getattr(order, name):
            write(template, value)
            changes.append(f"{_option(name)}={_note(value)}")
    _refuse_the_rest(order, kind, has_template=bool(template))
    return changes


def template_of(thing: Thing) -> Thing:
    """The pod template of a Job, or the Pod itself; empty for other owners, which have several."""
    if thing["kind"] == "Pod":
        return thing
    found = (thing.get("spec") or {}).get("template") or {} if thing["kind"] == "Job" else {}
    return found if (found.get("spec") or {}).get("containers") else {}


def train_elastically(job: Thing) -> None:
    """Makes a Job an elastic training: ranks that never started are not waited for when the first one has succeeded."""
    job["spec"].setdefault("successPolicy", {"rules": [{"succeededIndexes": "0"}]})


def kind_of(thing: Thing) -> Kind:
    """Where objects like this one are served."""
    known = {"Job": JOBS, "Pod": PODS}
    return known.get(thing["kind"]) or Kind(thing["kind"], f"{thing['kind'].lower()}s", str(thing["apiVersion"]))


def _note(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value if value is not None else "")


def _option(name: str) -> str:
    return "type" if name == "kind" else name.replace("_", "-")


def _refuse_the_rest(order: SimpleNamespace, kind: str, *, has_template: bool) -> None:
    unused = {**({} if kind == "Job" else _OF_JOBS), **({} if has_template else _OF_PODS)}
    for name in unused:
        if getattr(order, name) not in (None, "", ()):
            raise Problem(f"--{_option(name)}: a {kind} has no such field that could be set; write it in the file")


def _set_workers(spec: Thing, count: int) -> None:
    mode = "Indexed" if count > 1 or spec.get("completionMode") == "Indexed" else "NonIndexed"
    spec |= {"parallelism": count, "completions": count, "completionMode": mode}


def _set_retries(spec: Thing, count: int) -> None:
    spec["backoffLimit"] = count


def _set_requeue(spec: Thing, text: str) -> None:
    """A podFailurePolicy under which these failures are repeated, and no retry is counted."""
    codes, conditions = set(), []
    for word in text.replace(",", " ").split():
        if word == "node-lost":
            conditions.append({"type": "DisruptionTarget", "status": "True"})
        elif word == "oom":
            codes.add(137)
        elif word.isdecimal() and 0 < int(word) < 256:
            codes.add(int(word))
        else:
            raise Problem(f"--requeue-on: found {word!r}; exit codes from 1 to 255, oom and node-lost are allowed")
    values = {"operator": "In", "values": sorted(codes)}
    rules: list[Thing] = [{"action": "Ignore", "onExitCodes": values}] if codes else []
    rules += [{"action": "Ignore", "onPodConditions": conditions}] if conditions else []
    spec["podFailurePolicy"] = {"rules": rules}


def _set_gpus(template: Thing, text: str) -> None:
    if is_fraction(text):
        template.setdefault("metadata", {}).setdefault("annotations", {})["fairway.dev/gpu-fraction"] = text
    else:
        _request(template, GPU, text)


def of_maker(template: Thing, nodes: Sequence[Thing] | None) -> None:
    """Has a pod template ask for GPUs of the maker whose the nodes have, where that is one and not NVIDIA."""
    there = {name for node in nodes or () for name in (node.get("status") or {}).get("allocatable") or {}}
    others = [name for name in OTHER_MAKERS if name in there]
    if GPU in there or len(others) != 1:
        return
    for container in template["spec"]["containers"]:
        for part in (container.get("resources") or {}).values():
            if GPU in part:
                part[others[0]] = part.pop(GPU)


def is_fraction(gpus: str) -> bool:
    """Whether it is a part of a GPU; a Problem where it is no number of GPUs either."""
    try:
        number = float(gpus or 0)
    except ValueError:
        number = -1.0
    if 0 < number < 1 or (number >= 0 and number.is_integer()):
        return number % 1 > 0
    raise Problem(f"--gpus: {gpus!r} is no number of GPUs; use 2, or a fraction of one such as 0.5")


def _request(template: Thing, resource: str, text: str) -> None:
    asked = template["spec"]["containers"][0].setdefault("resources", {})
    for part in ("requests", "limits"):
        asked.setdefault(part, {})[resource] = text


def _set_cpus(template: Thing, text: str) -> None:
    with told(Malformed, by="--cpus: "):
        exact(text)
    _request(template, "cpu", text)


def _set_memory(template: Thing, text: str) -> None:
    check_memory(text)
    _request(template, "memory", text)


def check_memory(text: str) -> None:
    """Raises a Problem where a text is no amount of memory, or where its unit was left out."""
    found = re.fullmatch(r"([1-9][0-9.]*) ?([kmgt]i?)?b?", text, re.IGNORECASE | re.ASCII)
    unit = (found[2] or "Gi").upper().replace("I", "i") if found else ""
    advice = f"; did you mean {found[1]}{unit}?" if found else ""
    try:
        size = exact(text)
    except Malformed as error:
        raise Problem(f"--memory: {error}{advice}") from error
    if size < LEAST_BYTES:
        raise Problem(f"--memory: nothing runs in {int(size)} bytes{advice or '; 4Gi would do'}", exit_code=1)


def _set_grace(template: Thing, text: str) -> None:
    with told(Malformed, by="--grace: "):
        template["spec"]["terminationGracePeriodSeconds"] = round(duration(text))


def _set_image(template: Thing, text: str) -> None:
    template["spec"]["containers"][0]["image"] = text


def _set_priority(template: Thing, text: str) -> None:
    template["spec"].pop("priority", None)
    template["spec"]["priorityClassName"] = text


_OF_JOBS = {"workers": _set_workers, "retries": _set_retries, "requeue_on": _set_requeue}
_OF_PODS = {
    "gpus": _set_gpus, "memory": _set_memory, "grace": _set_grace, "image": _set_image, "priority": _set_priority,
    "cpus": _set_cpus,
}  # fmt: skip
"""Option → how it is written into a Job's spec, or into a pod template."""


def deadline(text: str, now: float) -> str:
    """An RFC 3339 time from one, from a duration (`2h`), or from a time of day, with its day if that is not next; a
    Problem if it has passed."""
    if time(found := _moment(text, now)) <= now:
        raise Problem(f"--deadline: {text} has passed", exit_code=1)
    return found


def _moment(text: str, now: float) -> str:
    with told(Malformed, by="--deadline: "):
        if re.match(r"\d{4}-\d\d-\d\d[Tt]", text):
            return time_text(time(text))
        if re.fullmatch(r"([\d.]+[a-zµ]+)+", text):
            return time_text(now + duration(text))
    here = datetime.fromtimestamp(now).astimezone()
    found = re.fullmatch(r"(?:(today|tomorrow|\d{4}-\d\d-\d\d) ?)?(?:(\d{1,2}):(\d\d))?", text.strip())
    if not found or not text.strip():
        allowed = "2h, 18:00, tomorrow 8:00, 2026-12-01 8:00 or 2026-12-01T08:00:00Z is allowed"
        raise Problem(f"--deadline: found {text!r}; {allowed}")
    day, hour, minute = found.groups()
    with told(ValueError, by="--deadline: "):
        date = datetime.fromisoformat(day) if day and day[0].isdecimal() else here.replace(tzinfo=None)
        then = date.replace(hour=int(hour or 0), minute=int(minute or 0), second=0, microsecond=0)
        then += timedelta(days=day == "tomorrow" or (not day and then.timestamp() <= now))
    return time_text(then.timestamp())
