"""What runs pods, for tests of the server alone: every log has the same pieces, and what was asked for is kept."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from fairway.node.archive import Run
from fairway.node.execute import Execution, Order
from fairway.node.logs import Gap, LogOptions, Piece


@dataclass
class Kubelet:
    pieces: Callable[[], AsyncIterator[Piece]]
    node: str = "here"
    gap: Gap | None = None
    running: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str, LogOptions]] = field(default_factory=list)

    def pod_log(
        self, namespace: str, name: str, container: str, options: LogOptions
    ) -> tuple[Gap | None, AsyncIterator[Piece]] | None:
        self.asked.append((f"{namespace}/{name}", container, options))
        return self.gap, self.pieces()

    def run_log(self, run: Run, options: LogOptions) -> AsyncIterator[Piece]:
        return self.pieces()

    async def runs(self, namespace: str, workload: str, uid: str = "", *, pod: str = "") -> list[Run]:
        return []

    def shims(self, namespace: str, name: str) -> dict[str, int]:
        return self.running

    def lacks_devices(self, namespace: str, name: str, container: str) -> bool:
        return False

    def execute(self, namespace: str, name: str, container: str, order: Order) -> Execution | None:
        return None
