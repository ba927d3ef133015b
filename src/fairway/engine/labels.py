"""Labels, taints and tolerations, as Kubernetes reads them. What they are asked for is decided elsewhere."""

from collections.abc import Mapping

from .model import Expression, Selector, Taint, Toleration


def holds(one: Expression, value: str | None) -> bool:
    """Whether a label's value, None where it is missing, satisfies the expression."""
    match one.operator:
        case "In":
            return value in one.values
        case "NotIn":
            return value not in one.values
        case "Exists" | "DoesNotExist":
            return (value is not None) == (one.operator == "Exists")
    try:
        left, right = int(value or ""), int(one.values[0])
    except (ValueError, IndexError):
        return False
    return left > right if one.operator == "Gt" else left < right


def selects(selector: Selector, labels: Mapping[str, str]) -> bool:
    """Whether labels satisfy every requirement."""
    return all(holds(one, labels.get(one.key)) for one in selector)


def tolerates(tolerations: tuple[Toleration, ...], taint: Taint) -> bool:
    return any(
        (not one.effect or one.effect == taint.effect)
        and (one.key == taint.key or (not one.key and one.operator == "Exists"))
        and (one.operator == "Exists" or one.value == taint.value)
        for one in tolerations
    )
