"""Whether pods bear those beside them: (anti-)affinity, topology spread and host ports.

Starts are taken in order, each with all that stands and all that started before it. Nothing here is fast: it is asked
only where some pod looks at the pods beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fairway.engine import Columns, PodClass, Spread, clash, means, required, selects

from .layout import Item, Layout
from .placement import Found, unfit
from .plan_view import PlanView

APART = "host port", "anti-affinity", "claim"


def neighbours(view: PlanView) -> Found:
    """Those that leave may have been seen beside a pod or not, or by affinity alone, as in Kubernetes: all pass, but
    what starts waits for what it cannot bear. Spread binds what comes, so those that move may come later; what grows
    pod by pod may come behind any that grows."""
    if not view.snapshot.is_social:
        return
    company = AffinityRules(view)
    stays = company.count(view.stands) - company.count([one for one in view.leaves if one.role == "evicted"])
    for pod in view.snapshot.pods:
        if pod.node in view.snapshot.row_of and not pod.is_leaving:
            stays[company.index[pod.pod], view.snapshot.row_of[pod.node]] += 1
    going, moved = company.count(view.leaves), np.zeros_like(stays)
    cores, rests = view.turns
    minimums = stays + company.count(cores)
    whole = minimums + company.count(rests)
    for turn, item in enumerate([*cores, *rests]):
        pods, before = company.count([item]), stays if turn < len(cores) else minimums
        unnamed = company.leaving(view, item.after) if item.role == "new" else 0
        stays, moved = stays + pods, moved + pods * (item.role == "moved")
        for kind, row in np.argwhere(pods).tolist() if item.role != "told" else ():
            alone = before.copy()  # with those of its own kind, but not yet others
            alone[kind] += pods[kind]
            seen = [stays, stays + going, alone, alone + going, *([] if turn < len(cores) else [whole, whole + going])]
            why = [company.disturbed(counts, kind, item.admission.pool, row) for counts in seen]
            why.append(company.disturbed(stays + going, kind, item.admission.pool, row, going))
            if why[0] == "spread":
                why.append(company.disturbed(stays - moved, kind, item.admission.pool, row))
            closely = [company.disturbed(one + unnamed, kind, item.admission.pool, row) in APART for one in seen]
            if all(why) or all(closely):
                yield item.key, f"{why[0] or 'who leaves'} on {view.snapshot.nodes[row].name}"


class AffinityRules:
    """Pods by class and node: `index` is the row of a class in an int64[class, node]."""

    def __init__(self, view: PlanView) -> None:
        self.snapshot = view.snapshot
        pods = [podset.pod for one in (*view.starts, *view.leaves, *view.stands) for podset in one.workload.podsets]
        self.classes = list(dict.fromkeys([*pods, *(one.pod for one in view.snapshot.pods)]))
        self.index = {pod: row for row, pod in enumerate(self.classes)}
        self.labels = [dict(node.labels) for node in view.snapshot.nodes]

    def count(self, items: Sequence[Item]) -> Columns:
        """int64[class, node]: pods of these items."""
        laid, found = Layout(self.snapshot, items), np.zeros((len(self.classes), len(self.labels)), np.int64)
        times, here = np.bincount(laid.form_of, minlength=len(laid.forms)), laid.row >= 0
        of = np.array([self.index[pod] for pod, _ in laid.kinds], np.int64)
        np.add.at(found, (of[laid.kind[here]], laid.row[here]), (laid.count * times[laid.form])[here])
        return found

    def leaving(self, view: PlanView, after: tuple[str, ...]) -> Columns:
        """int64[class, node]: pods that leave, without those of `after`."""
        found = self.count([one for one in view.leaves if one.key not in after])
        for pod in view.snapshot.pods:
            if pod.is_leaving and pod.key not in after and pod.node in view.snapshot.row_of:
                found[self.index[pod.pod], view.snapshot.row_of[pod.node]] += 1
        return found

    def sum(self, counts: Columns, meant: Callable[[PodClass], bool]) -> Columns:
        """int64[node]: pods of the classes that are meant."""
        found: Columns = counts[[row for row, pod in enumerate(self.classes) if meant(pod)]].sum(axis=0)
        return found

    def beside(self, on: Columns, key: str) -> dict[str | None, int]:
        """Pods in each domain of a key, by label; None is no domain, and nothing is counted there."""
        found: dict[str | None, int] = {None: 0}
        for labels, count in zip(self.labels, on.tolist()):
            if key in labels:
                found[labels[key]] = found.get(labels[key], 0) + count
        return found

    def disturbed(self, counts: Columns, kind: int, pool: str, row: int, going: Columns | int = 0) -> str:
        """What a pod that stands on a node, and is counted there, could not bear beside it. `going`: those of `counts`
        that are none to its spread."""
        pod, here = self.classes[kind], self.labels[row].get
        for at, other in enumerate(self.classes):
            if counts[at, row] > (at == kind) and clash(pod, other):
                return "host port"
            if set(pod.exclusive) & set(other.exclusive) and counts[at].sum() > (at == kind):
                return "claim"
            keys = [one.topology_key for owner, meant in ((pod, other), (other, pod))
                    for one in required(owner, anti=True) if means(one, owner, meant)]
            if any(self.beside(counts[at], key)[here(key)] > (at == kind) for key in keys):
                return "anti-affinity"
        terms = required(pod, anti=False)
        friends = self.sum(counts, lambda other: all(means(one, pod, other) for one in terms))
        own, near = all(means(one, pod, pod) for one in terms), {one.topology_key for one in terms}
        placed = sum(count for labels, count in zip(self.labels, friends.tolist()) if near & labels.keys())
        is_first = own and placed <= 1  # the pod itself is counted
        if any(here(key) is None or self.beside(friends, key)[here(key)] <= (own and not is_first) for key in near):
            return "affinity"
        hard = [one for one in pod.spread if one.hard]
        return "spread" if any(self.is_lopsided(counts - going, pod, pool, row, one) for one in hard) else ""

    def is_lopsided(self, counts: Columns, pod: PodClass, pool: str, row: int, spread: Spread) -> bool:
        """Whether the node's domain has too many more than the emptiest of those that count: with the keys of all hard
        constraints, of the pool and, where it is honoured, selected and tolerated."""
        on = self.sum(counts, lambda one: one.namespace == pod.namespace and selects(spread.selector, dict(one.labels)))
        keys, totals = {one.topology_key for one in pod.spread if one.hard}, dict[str, int]()
        wanting = replace(pod, volumes=()) if spread.honor_affinity else PodClass(tolerations=pod.tolerations)
        rows = [at for at, one in enumerate(self.snapshot.pools) if one.name == pool]
        for node, labels, of_pool, count in zip(self.snapshot.nodes, self.labels, self.snapshot.pool_of, on.tolist()):
            ground = node if spread.honor_taints else replace(node, taints=())
            if of_pool in rows and keys <= labels.keys() and not unfit(ground, wanting):
                totals[labels[spread.topology_key]] = totals.get(labels[spread.topology_key], 0) + count
        least = min(totals.values(), default=0) if len(totals) >= spread.min_domains else 0
        here = self.labels[row].get(spread.topology_key)
        return here is None or totals.get(here, 0) - least > spread.max_skew
