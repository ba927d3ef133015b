"""A submission that is over a bound of its queue by itself: a limit, a budget, or a guarantee where it is not
preemptible.

No end of other work lets it start then. Bounds are those of the queue and of all above it, in each pool that it may
use. Nodes that are out of use count in a percentage all the same: when they come back it is no mistake.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from fairway.api.scalars import Malformed, duration, duration_text, exact, shorter

from .amounts import OPTIONS, allocatable, amount
from .listing import GPU, OTHER_MAKERS
from .requirements import Requirements
from .view import View

Thing = dict[str, Any]
ALL, BOUNDS = "*", ("limit", "guaranteed")


@dataclass(frozen=True, slots=True)
class Bound:
    """The most of a resource that a queue may hold; `is_owed`: of what is not preemptible, its guarantee."""

    queue: str
    resource: str
    most: Fraction
    is_owed: bool


def over_quota(view: View, asked: Requirements) -> Iterator[str]:
    """What it is over and what would be right, in a line; nothing where one of its pools would take it."""
    needs, pods = asked.needs, asked.pods
    try:
        broken = [
            next((it for it in _bounds(view, asked, pool) if needs.get(it.resource, 0) * pods > it.most), None)
            for pool in _pools(view, asked)
        ]
        yield from _over_budget(view, asked)
    except Malformed:
        return  # the server says what is wrong with it
    if bound := broken[0] if all(broken) else None:
        yield _words(bound, needs[bound.resource], pods)


def _over_budget(view: View, asked: Requirements) -> Iterator[str]:
    """The budgets that it is over by its time limit; without one what was learned counts, or a day."""
    gpus = asked.pods * sum((asked.needs.get(it, Fraction(0)) for it in (GPU, *OTHER_MAKERS)), Fraction(0))
    line, own = view.line(asked.queue), shorter(asked.limit, asked.seconds)
    said = [one.get("timeLimit") or {} for one in line.values()]
    usual = next((it["default"] for it in said if it.get("default")), "0")
    longest = min(map(duration, (own or usual, *(it["max"] for it in said if it.get("max")))))
    for name, spec in line.items():
        whole = exact(str(spec["budget"]["gpuHours"])) if spec.get("budget") else None
        if whole is not None and gpus * Fraction(longest) > whole * 3600:
            most = int(whole * 3600 / gpus)
            less = f"--time-limit {duration_text(most)} or " * bool(most)
            needs = f"needs up to {float(gpus) * longest / 3600:,.4g} GPU hours"
            has = f"the whole budget of queue {name} is {float(whole):,.4g}"
            yield f"--time-limit: {needs}; {has}; {less}another --queue would do"


def _bounds(view: View, asked: Requirements, pool: str) -> Iterator[Bound]:
    """All that bind it in a pool, its own queue's first."""
    for name, spec in view.line(asked.queue).items():
        for of in (pool, ALL):
            for resource, most, is_owed in _said(spec, of):
                known = _amount(view, of, resource, str(most)) if asked.is_fixed or not is_owed else None
                if known is not None:
                    yield Bound(name, resource, known, is_owed)


def _said(spec: Thing, pool: str) -> Iterator[tuple[str, object, bool]]:
    """Resource, amount and whether it is owed, of the quotas for a pool; what they name and do not guarantee is 0."""
    quotas = [it for it in spec.get("quotas") or () if it.get("pool", ALL) == pool]
    limit, owed = ({name: most for it in quotas for name, most in (it.get(word) or {}).items()} for word in BOUNDS)
    yield from ((name, most, False) for name, most in limit.items())
    yield from ((name, owed.get(name, 0), True) for name in {**limit, **owed})


def _amount(view: View, pool: str, resource: str, most: str) -> Fraction | None:
    """None of a part of what cannot be seen, may grow, or counts otherwise: slices of GPUs are parts of them."""
    if not most.endswith("%"):
        return exact(most)
    has = [allocatable(it) for it in view.of_pool(pool)]
    if not has or view.may_grow or any("/mig-" in name for one in has for name in one):
        return None
    return exact(most[:-1]) / 100 * sum(one.get(resource, Fraction(0)) for one in has)


def _pools(view: View, asked: Requirements) -> Sequence[str]:
    """Those that it may use, as far as it and its queue say."""
    allowed = next(iter(view.line(asked.queue).values()), {}).get("pools")
    return asked.pools or allowed or [it["metadata"]["name"] for it in view.pools or ()] or ["default"]


def _words(bound: Bound, need: Fraction, pods: int) -> str:
    """`--gpus: needs 4 GPUs; queue q may hold at most 2 GPUs: --gpus 2 or another --queue would do`."""
    option, each = OPTIONS.get(bound.resource, bound.resource), amount(need, bound.resource)
    most, fit = amount(bound.most, bound.resource), int(bound.most // need)
    needs, less = f"needs {each}", [f"{option} {most.split()[0]}"] * bool(bound.most)
    if pods > 1:
        needs = f"{pods} workers of {each} each need {amount(need * pods, bound.resource)}"
        option, less = "--workers", [f"--workers {fit}"] * bool(fit)
    holds = f"; queue {bound.queue} may hold at most"
    if bound.is_owed:
        holds, less = f" and cannot be preempted; queue {bound.queue} is guaranteed", [*less, "--preemptible"]
    right = ", ".join(less) + " or " * bool(less)
    return f"{option}: {needs}{holds} {most}; {right}another --queue would do"
