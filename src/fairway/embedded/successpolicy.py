"""When an Indexed Job has succeeded before all of its indexes have: as soon as one rule of `successPolicy` is met.

A rule names indexes, or how many must succeed, or how many of the indexes it names.
"""

from fairway.api.indexes import parse_indexes
from fairway.api.objects import Part


class SuccessRule(Part):
    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(Part):
    rules: tuple[SuccessRule, ...] = ()


def rule_met(policy: SuccessPolicy | None, succeeded: frozenset[int]) -> int:
    """The first rule that these indexes meet; -1 for none."""
    for row, rule in enumerate(policy.rules if policy else ()):
        named = succeeded if rule.succeeded_indexes is None else parse_indexes(rule.succeeded_indexes)
        if len(succeeded & named) >= (len(named) if rule.succeeded_count is None else rule.succeeded_count):
            return row
    return -1
