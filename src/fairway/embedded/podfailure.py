"""What a failed pod means for its Job: what the first matching rule of `podFailurePolicy` says; else it counts."""

from typing import Protocol

from fairway.api.objects import Condition, Part


class ExitCodes(Part):
    container_name: str = ""
    operator: str = "In"
    values: tuple[int, ...] = ()

    def matches(self, code: int) -> bool:
        return code != 0 and (code in self.values) == (self.operator == "In")


class Pattern(Part):
    type: str = ""
    status: str = "True"


class Rule(Part):
    action: str = "Count"
    on_exit_codes: ExitCodes | None = None
    on_pod_conditions: tuple[Pattern, ...] = ()


class PodFailurePolicy(Part):
    rules: tuple[Rule, ...] = ()


class Failed(Protocol):
    """A failed pod, as far as rules read it."""

    @property
    def exit_codes(self) -> tuple[tuple[str, int], ...]: ...
    @property
    def conditions(self) -> tuple[Condition, ...]: ...


def rule_of(policy: PodFailurePolicy | None, pod: Failed) -> tuple[int, str]:
    """Index and action of the rule that decides: Ignore, Count, FailIndex or FailJob; -1 for none."""
    for row, rule in enumerate(policy.rules if policy else ()):
        if _matches(rule, pod):
            return row, rule.action
    return -1, "Count"


def _matches(rule: Rule, pod: Failed) -> bool:
    codes = rule.on_exit_codes
    if codes is not None:
        return any(codes.matches(code) for name, code in pod.exit_codes if codes.container_name in ("", name))
    said = {(it.type, it.status) for it in pod.conditions}
    return any((it.type, it.status) in said for it in rule.on_pod_conditions)
