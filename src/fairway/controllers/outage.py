"""Nodes that are not ready, and from when on each counts as lost.

A node that fails loses what runs there at once. Where none of several nodes is ready, what failed is the way to them or
what reports of them, and nothing could start elsewhere: no node is lost until one is ready again. Kubernetes' node
lifecycle controller does the same ("full disruption"). Nodes that fail together are marked one after the other, and
come back as their kubelets report, which is every ten seconds: so a node has a moment before it is lost, and more of it
after an outage. A node neither ready nor lost is told to the engine as ready, with the taint that keeps pods off.
"""

import logging
from dataclasses import dataclass, field, replace
from math import inf

from fairway.engine import NOT_READY, Node

TOGETHER_SECONDS, RETURN_SECONDS = 2.0, 15.0
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outage:
    """`nodes`: as they are observed. `again_at`: when the next is lost."""

    nodes: dict[str, Node] = field(default_factory=dict)
    again_at: float | None = None
    _lost_at: dict[str, float] = field(default_factory=dict)  # of those not ready
    _lost: set[str] = field(default_factory=set)
    _is_total: bool = False

    def note(self, name: str, node: Node | None) -> Node | None:
        """What the engine is to be told of a node that changed."""
        self.nodes.pop(name, None)
        if node:
            self.nodes[name] = node
        if node is None or node.is_ready:
            self._lost_at.pop(name, None)
            self._lost.discard(name)
            return node
        self._lost_at.setdefault(name, 0.0)
        return self.told(name)

    def told(self, name: str) -> Node:
        node = self.nodes[name]
        is_spared = not node.is_ready and name not in self._lost
        return replace(node, is_ready=True, taints=(*node.taints, NOT_READY)) if is_spared else node

    def turned(self, now: float) -> set[str]:
        """The nodes that are lost by now and were not, or the other way round."""
        self._turn(len(self._lost_at) == len(self.nodes) > 1, now)
        for name, at in self._lost_at.items():
            self._lost_at[name] = at or (inf if self._is_total else now + TOGETHER_SECONDS)
        before, self._lost = self._lost, {name for name, at in self._lost_at.items() if at <= now}
        self.again_at = min((at for at in self._lost_at.values() if now < at < inf), default=None)
        return before ^ self._lost

    def _turn(self, is_total: bool, now: float) -> None:
        if is_total and not self._is_total:
            log.warning("none of %d nodes is ready: nothing is evicted for that until one is", len(self.nodes))
        if is_total != self._is_total:
            self._lost_at = dict.fromkeys(self._lost_at, inf if is_total else now + RETURN_SECONDS)
        self._is_total = is_total
