"""Reads the protobuf that kubectl posts where it does not fall back to JSON: `create namespace`, `auth can-i`, drains.

A body is an envelope (four magic bytes and a runtime.Unknown: what it is, and its bytes) around one message. Which
field of a message is what stands in protobuf.json, for the built-in kinds; it is read when the first such body comes.
The result is the object as JSON would have it. Go writes every plain field, so an empty text, and a zero among
`_PLAIN`, mean that nothing was said; all else is kept, since a pointer to zero looks the same. Nothing is written in
protobuf: who sends it reads JSON too.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from importlib import resources
from typing import Any

import msgspec

_MAGIC = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_META = "io.k8s.apimachinery.pkg.apis.meta.v1."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = frozenset((
    "count", "failureThreshold", "generation", "globalDefault", "healthCheckNodePort", "hostIPC", "hostNetwork",
    "hostPID", "hostPort", "initialDelaySeconds", "minReadySeconds", "nodePort", "paused", "periodSeconds",
    "publishNotReadyAddresses", "readOnly", "stdin", "stdinOnce", "successThreshold", "timeoutSeconds", "tty",
    "unschedulable"))


def decode(body: bytes) -> dict[str, Any]:
    """The object in the envelope; ValueError if it is none, or of a kind without a table."""
    if not body.startswith(_MAGIC):
        raise ValueError("the body does not begin with the envelope's four bytes")
    envelope = dict(_fields(body[len(_MAGIC):]))
    typed = dict(_fields(envelope.get(1, b"")))
    api_version, kind = _text(typed.get(1, b"")), _text(typed.get(2, b""))
    group, _, version = api_version.rpartition("/")
    name = _META + kind if kind == "DeleteOptions" else f"io.k8s.api.{group.split('.')[0] or 'core'}.{version}.{kind}"
    if name not in _messages():
        raise ValueError(f"no fields are known for {api_version} {kind}")
    try:
        return {"apiVersion": api_version, "kind": kind} | _object(name, envelope.get(2, b""))
    except (OverflowError, TypeError, msgspec.DecodeError) as error:
        raise ValueError(f"the message is none of a {kind}: {error}") from error


@cache
def _messages() -> dict[str, dict[str, tuple[str, str, str]]]:
    """Message -> field number -> JSON name, type, and how it occurs: one, list, map or inline."""
    table = resources.files(__package__).joinpath("protobuf.json").read_bytes()
    return msgspec.json.decode(table, type=dict[str, dict[str, tuple[str, str, str]]])


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """The numbers and raw values of a message, in order: whole numbers, or bytes."""
    at = 0
    while at < len(_sized(data)):
        tag, at = _varint(data, at)
        wire = tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if wire == _BYTES:
            size, at = _varint(data, at)
        else:
            size = {_FIXED32: 4, _FIXED64: 8}.get(wire, len(data))
        if at + size > len(data):
            raise ValueError("the message ends within a field")
        yield tag >> 3, data[at:at + size]
        at += size


def _sized(raw: Any) -> bytes:
    if not isinstance(raw, bytes):
        raise ValueError("a number stands where text or a message belongs")
    return raw


def _text(raw: Any) -> str:
    return _sized(raw).decode()


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at `at` and where it ends."""
    number = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the message ends within a number, or the number is too long")
        number |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return number, at


def _object(name: str, data: bytes) -> dict[str, Any]:
    """A message as its JSON object."""
    fields, found = _messages().get(name, {}), dict[str, Any]()
    for number, raw in _fields(data):
        field, kind, how = fields.get(str(number), ("", "", ""))
        if how == "list":
            found.setdefault(field, []).append(_value(kind, raw))
        elif how == "map":
            pair = dict(_fields(raw))
            found.setdefault(field, {})[_text(pair.get(1, b""))] = _value(kind, pair.get(2, b""))
        elif how == "inline":
            found |= _object(kind, raw)
        elif how and not ((value := _value(kind, raw)) in ("", None) or (value == 0 and field in _PLAIN)):
            found[field] = value
    return found


def _value(kind: str, raw: Any) -> Any:
    """A field's value as JSON has it; None for a moment that was not given."""
    if isinstance(raw, int):
        signed = raw - (1 << 64) if raw >> 63 else raw
        return bool(raw) if kind == "bool" else signed
    if kind in ("string", "bytes"):
        return _text(raw) if kind == "string" else base64.b64encode(raw).decode()
    if kind in _SPECIAL:
        return _SPECIAL[kind](dict(_fields(raw)))
    thing = _object(kind, raw)
    wraps_list = [(field, how) for field, _, how in _messages().get(kind, {}).values()] == [("items", "list")]
    return thing.get("items", []) if wraps_list else thing


def _moment(fields: Mapping[int, Any], timespec: str = "seconds") -> str | None:
    if not fields:
        return None
    since = timedelta(seconds=_value("int64", fields.get(1, 0)), microseconds=fields.get(2, 0) // 1000)
    return (_EPOCH + since).isoformat(timespec=timespec).replace("+00:00", "Z")


def _parsed(fields: Mapping[int, Any]) -> Any:
    return msgspec.json.decode(fields.get(1, b"{}"))


_SPECIAL: Mapping[str, Callable[[Mapping[int, Any]], Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": lambda fields: _text(fields.get(1, b"0")),
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": lambda fields: (
        _text(fields.get(3, b"")) if fields.get(1) else _value("int64", fields.get(2, 0))),
    _META + "Time": _moment,
    _META + "MicroTime": partial(_moment, timespec="microseconds"),
    _META + "FieldsV1": _parsed,
    "io.k8s.apimachinery.pkg.runtime.RawExtension": _parsed,
}
