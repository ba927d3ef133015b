"""What the server answers when it says no: Kubernetes' Status objects, to the letter, since clients act on them.

A Failure is raised anywhere below `Server.handle` and becomes the response there. A Cause is one thing wrong with an
object, at a field's path; `invalid` gathers them into one 422. The texts are those of Kubernetes: client libraries
read the reason, people read the message.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from fairway.embedded.kinds import Kind


class Cause(NamedTuple):
    """What is wrong with one field: `reason` is Kubernetes' word for the sort of fault."""

    field: str
    reason: str
    message: str


class Failure(Exception):
    """The Status that answers the request."""

    def __init__(self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, details

    def status(self) -> dict[str, Any]:
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
                "reason": self.reason, **({"details": self.details} if self.details else {}), "code": self.code}


def required(field: str, detail: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def wrong(field: str, value: object, detail: str) -> Cause:
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown(value)}: {detail}")


def unsupported(field: str, value: object, allowed: Sequence[object]) -> Cause:
    names = ", ".join(shown(each) for each in allowed)
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {shown(value)}: supported values: {names}")


def denied(field: str, detail: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def too_many(field: str, found: int, most: int) -> Cause:
    return Cause(field, "FieldValueTooMany", f"Too many: {found}: must have at most {most} items")


def duplicate(field: str, value: object) -> Cause:
    return Cause(field, "FieldValueDuplicate", f"Duplicate value: {shown(value)}")


def shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 300 else text[:300] + "…"


def named(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _about(kind: Kind, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", kind.group), ("kind", kind.plural)) if value}


def _quoted(kind: Kind, name: str) -> str:
    return f'{named(kind.plural, kind.group)} "{name}"'


def not_found(kind: Kind, name: str) -> Failure:
    return Failure(404, "NotFound", f"{_quoted(kind, name)} not found", details=_about(kind, name))


def no_such_path() -> Failure:
    return Failure(404, "NotFound", "the server could not find the requested resource")


def already_exists(kind: Kind, name: str) -> Failure:
    return Failure(409, "AlreadyExists", f"{_quoted(kind, name)} already exists", details=_about(kind, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(kind: Kind, name: str, *, why: str = STALE) -> Failure:
    text = f"Operation cannot be fulfilled on {_quoted(kind, name)}: {why}"
    return Failure(409, "Conflict", text, details=_about(kind, name))


def invalid(kind: str, group: str, name: str, *, causes: Sequence[Cause]) -> Failure:
    """`kind` is a Kind's own name, here and in the details."""
    texts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    text = f'{named(kind, group)} "{name}" is invalid: ' + (texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
    details = {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value} | {
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]}
    return Failure(422, "Invalid", text, details=details)


def forbidden(kind: Kind, name: str, *, why: str) -> Failure:
    return Failure(403, "Forbidden", f"{_quoted(kind, name)} is forbidden: {why}", details=_about(kind, name))


def bad_request(message: str) -> Failure:
    return Failure(400, "BadRequest", message)


def method_not_allowed() -> Failure:
    return Failure(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media(*accepted: str) -> Failure:
    text = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return Failure(415, "UnsupportedMediaType", text)


def expired(message: str) -> Failure:
    return Failure(410, "Expired", message)


def too_large(asked: int, current: int) -> Failure:
    """A resourceVersion that this server has not reached."""
    text = f"Too large resource version: {asked}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return Failure(504, "Timeout", text, details={"causes": causes, "retryAfterSeconds": 1})
