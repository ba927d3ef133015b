"""What is wrong with a submission that only the cluster knows: a queue that is not there, more than any node has.

All of it is known before anything is made (`view`). What the user may not read is not held against the submission.
The engine is not asked: it is slow to load, and says the same later, as the reason for which the workload waits.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

from fairway.api.scalars import Malformed, duration, duration_text
from fairway.api.team import UID
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.kinds import Ref

from .amounts import OPTIONS, allocatable, amount, listed
from .cancelled import unknown
from .find import get, sought
from .main import Problem, told
from .output import fault, near, no_leaf
from .quota import over_quota
from .requirements import Requirements, requirements_of
from .view import View, selects

Thing = dict[str, Any]
OF_SHELLS = ("cd", "source", ".", "export", "ulimit", "module", "conda", "set", "if", "for", "while")
"""Words that only a shell knows, or that what a shell has read makes."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """`may_pass`: waiting could help, so that --wait-anyway queues it all the same."""

    message: str
    may_pass: bool = True


async def check(client: Client, view: View, things: Sequence[Thing], order: SimpleNamespace) -> None:
    """Raises a Problem for the first mistake that there is, unless waiting could help and is wanted anyway."""
    for thing in things:
        asked = requirements_of(thing)
        room = [] if order.dry_run else [*_of_room(view, asked)]
        found = await against(client, view, asked, with_quota=not order.dry_run)
        before = _notes(thing).get("fairway.dev/after", "").replace(",", " ").split()
        refuse([*found, *room, *await of_order(client, asked.namespace, before)], order)


async def against(client: Client, view: View, asked: Requirements, *, with_quota: bool = True) -> list[Mistake]:
    """What the queue that a workload names has against it."""
    found = [*_of_queue(view, asked), *of_priority(view, asked), *_of_pools(view, asked)]
    found += map(Mistake, over_quota(view, asked) if with_quota else ())
    return [*found, *await _of_namespace(client, view, asked)]


def refuse(found: Iterable[Mistake], order: SimpleNamespace) -> None:
    """Raises a Problem for the first, unless waiting could help and is wanted anyway."""
    for one in found:
        if not (order.wait_anyway and one.may_pass):
            advice = "; --wait-anyway queues it all the same" if one.may_pass else ""
            raise Problem(one.message + advice, exit_code=1)


def _notes(thing: Thing) -> dict[str, str]:
    return thing["metadata"].get("annotations") or {}


def _of_queue(view: View, asked: Requirements) -> Iterator[Mistake]:
    if view.queues is None:
        return
    name = asked.queue
    below = sorted(it for it, one in view.queues.items() if (one.get("spec") or {}).get("parent") == name)
    if name not in view.queues:
        leaves = view.queues.keys() - {(one.get("spec") or {}).get("parent") for one in view.queues.values()}
        yield Mistake(f"--queue: there is no queue {name!r}{near(name, leaves)}")
    elif below:
        yield Mistake(no_leaf(name, below))
    elif why := fault(view.queues.get(name) or {}):
        yield Mistake(f"--queue: {why}")
    longest = [it for one in view.line(name).values() if (it := (one.get("timeLimit") or {}).get("max"))]
    try:
        most, limit = min(map(duration, longest), default=None), duration(asked.limit) if asked.limit else 0.0
    except Malformed:
        return  # the server says what is wrong with it
    if most is not None and limit > most:
        yield Mistake(f"--time-limit: queue {name} allows at most {duration_text(most)}", may_pass=False)


def of_priority(view: View, asked: Requirements) -> Iterator[Mistake]:
    name = asked.priority
    if not name or view.classes is None:
        return
    if name not in view.classes:
        yield Mistake(f"--priority: there is no PriorityClass {name!r}{near(name, view.classes)}", may_pass=False)
        return
    highest = [most for it in view.line(asked.queue).values() if (most := it.get("maxPriority")) is not None]
    if highest and view.classes[name] > (most := min(highest)):
        yield Mistake(f"--priority: {name} is {view.classes[name]}; queue {asked.queue} allows at most {most}")


def _of_pools(view: View, asked: Requirements) -> Iterator[Mistake]:
    there = {it["metadata"]["name"] for it in view.pools or ()} or {"default"}
    for name, spec in view.line(asked.queue).items():
        own = spec.get("pools") or ()
        has = f"--queue: queue {name} has pools {', '.join(own)}"
        if own and asked.pools and not set(asked.pools) & set(own):
            yield Mistake(f"{has}; it asks for {', '.join(asked.pools)}; another --queue would do")
        elif own and view.pools is not None and not there & set(own):
            yield Mistake(f"{has}, and there is none of them; there are: {', '.join(sorted(there))}")


async def _of_namespace(client: Client, view: View, asked: Requirements) -> list[Mistake]:
    selectors = [it["namespaces"] for it in view.line(asked.queue).values() if it.get("namespaces")]
    if not selectors and os.getuid():
        return []
    name = asked.namespace
    space = await get(client, Ref(kinds.NAMESPACES, name))
    if space is None:
        return []
    if _notes(space).get(UID) == "0":
        text = f"-n: {name} is root's, and no pod runs as root on a shared machine; submit as the user that it is for"
        return [Mistake(text, may_pass=False)]
    labels = space["metadata"].get("labels") or {}
    allowed = all(selects(it, {"kubernetes.io/metadata.name": name, **labels}) for it in selectors)
    return [] if allowed else [Mistake(f"--queue: {asked.queue} takes no workloads of namespace {name}")]


async def of_order(client: Client, namespace: str, names: Sequence[str]) -> list[Mistake]:
    """Whether what a workload is to come after is there, and can still succeed."""
    found = []
    for name in names:
        with told(Problem, by="--after: "):
            before = await sought(client, namespace, name)
        if before is None:
            found.append(Mistake(f"--after: {await unknown(client, namespace, name)}"))
        elif before.phase == "Failed":
            found.append(Mistake(f"--after: {name} has failed, so this would fail at once", may_pass=False))
    return found


def _of_room(view: View, asked: Requirements) -> Iterator[Mistake]:
    """More in one pod than any node has, or more pods at once than all nodes together have room for."""
    if not view.nodes or view.may_grow:
        return
    needs, nodes = asked.needs, [(it["metadata"]["name"], allocatable(it)) for it in view.nodes]
    for resource, need in needs.items():
        name, most = max(((name, has.get(resource, Fraction(0))) for name, has in nodes), key=lambda it: it[1])
        if need > most:
            option, word = OPTIONS.get(resource, resource), resource
            yield Mistake(f"{option}: needs {amount(need, word)}; the largest node, {name}, has {amount(most, word)}")
            return
    room = sum(min((int(has.get(it, 0) // need) for it, need in needs.items()), default=1) for _, has in nodes)
    if not room:
        yield Mistake(f"--cpus: no node has all that it needs together: {listed(needs)}")
    elif needs and asked.pods > room:
        instead = f"--workers {room}, or --min-workers {room} to start with fewer"
        each = f"{asked.pods} workers of {listed(needs)} each"
        yield Mistake(f"--workers: {each}; there is room for {room} at once: {instead}")


def program_missing(argv: Sequence[str], path: str | None, folder: str) -> Mistake | None:
    """A program that this machine does not have. `path`: the PATH that it will be looked for in; None: not known."""
    from shutil import which

    if not os.path.isdir(folder):
        return Mistake(f"--chdir: there is no folder {folder}")
    word = argv[0]
    place = os.path.join(folder, word)
    if os.sep in word:
        if not os.path.exists(place):
            return Mistake(f"there is no file {word}")
        if os.path.isdir(place):
            return Mistake(f"{word} is a folder, no program; `--chdir {word}` runs a program in it")
        is_program = os.access(place, os.X_OK)
        return None if is_program else Mistake(f"{word} is not executable; run it with its interpreter, or chmod +x it")
    if path is None or which(word, path=path):
        return None
    here = f"; the file of this folder is ./{word}" if os.path.isfile(place) else _meant(word)
    return Mistake(f"there is no program {word!r} on the PATH{here}")


def _meant(word: str) -> str:
    """What to write for a first word that only a shell understands."""
    name, sign, _ = word.partition("=")
    if sign and name.isidentifier():
        return f"; a variable is an option before the program: --env {name}=VALUE"
    return "; what a shell runs is: -- sh -c 'LINE'" if " " in word or word in OF_SHELLS else ""
