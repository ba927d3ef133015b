"""get, list and watch: committed objects, at the version asked for, chosen by selectors, in the form asked for.

A list is taken at one revision, also over several pages: the continue token names it, and the log gives back how the
objects were then, or 410 when it no longer can. Where there is no selector objects are not decoded at all. A watch is
a revision that moves along the log; a change by which an object enters or leaves the selection is shown as its coming
or going. Bookmarks tell how far the watch has come; the last one is sent when its time is over.
"""

import base64
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from fairway.embedded import selector
from fairway.embedded.call import Call
from fairway.embedded.catalog import Resource
from fairway.embedded.errors import Cause, bad_request, expired, invalid, too_large
from fairway.embedded.registry import Registry
from fairway.embedded.store import Compacted, Entry, Event, encode
from fairway.embedded.table import table
from fairway.kube.transport import Response

BOOKMARK_SECONDS, WATCH_SECONDS = 30.0, 3600.0
_JSON = {"content-type": "application/json"}
_PARTIAL = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
decode = msgspec.json.decode


class _Labels(msgspec.Struct):
    labels: dict[str, str] | None = None


class _Labelled(msgspec.Struct):
    metadata: _Labels


class _Whole(msgspec.Struct):
    metadata: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a resource are meant; an empty `namespace` or `name` means any."""

    namespace: str
    name: str
    labels: selector.LabelTest | None
    fields: selector.ObjectTest | None

    def takes(self, place: tuple[str, ...], value: bytes) -> bool:
        """`place`: namespace and name."""
        if self.namespace not in ("", place[0]) or self.name not in ("", place[1]):
            return False
        if self.labels and not self.labels(_labelled(value).metadata.labels or {}):
            return False
        return not self.fields or self.fields(decode(value))


class _Page(msgspec.Struct):
    """What a continue token says: the revision of the list, and the place after which it goes on."""

    v: int
    after: tuple[str, str]


_page_of = msgspec.json.Decoder(_Page).decode
_whole = msgspec.json.Decoder(_Whole).decode
_labelled = msgspec.json.Decoder(_Labelled).decode


def selection(call: Call) -> Selection:
    name, fields = selector.name_of(call.query.get("fieldSelector", ""))
    return Selection(call.namespace, call.name or name, selector.label_test(call.query.get("labelSelector", "")),
                     selector.field_test(fields, call.resource.name, call.resource.selectable))


def get(registry: Registry, call: Call) -> Response:
    _at(registry, call)
    return answer(registry, call, call.resource.encoded(registry.shown(call.resource, call.key)))


def answer(registry: Registry, call: Call, value: bytes, *, status: int = 200) -> Response:
    """One object, in the form asked for."""
    if call.view:
        value = encode(_viewed(registry, call, [decode(value)]))
    return Response(status, _JSON, value)


def list_(registry: Registry, call: Call) -> Response:
    chosen, resource = selection(call), call.resource
    revision, after, exact = _page(registry, call)
    limit = call.number("limit") or 0
    found, rest = _listed(_then(registry, resource, revision if exact else None), chosen, after=after, limit=limit)
    about: dict[str, Any] = {"resourceVersion": str(revision)}
    if rest:
        token = encode({"v": revision, "after": found[-1][0]})
        about["continue"] = base64.urlsafe_b64encode(token).decode()
        if not (chosen.labels or chosen.fields):
            about["remainingItemCount"] = rest
    values = [resource.encoded(entry.value) for _, entry in found]
    if call.view == "Table":
        return Response(200, _JSON, encode({**_viewed(registry, call, map(decode, values)), "metadata": about}))
    kind, version = f"{resource.kind.kind}List", resource.kind.api_version
    if call.view:
        kind, version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        start = encode(_PARTIAL)[:-1]
        values = [b'%b,"metadata":%b}' % (start, _whole(value).metadata) for value in values]
    head = encode({"kind": kind, "apiVersion": version, "metadata": about})[:-1]
    return Response(200, _JSON, b'%b,"items":[%b]}\n' % (head, b",".join(values)))


Place = tuple[str, str]
"""Namespace and name."""
Known = tuple[Mapping[Place, Entry], Sequence[Place]]
"""The objects of a resource, and where they are in order."""


def _listed(
    known: Known, chosen: Selection, *, after: tuple[str, ...] = (), limit: int = 0
) -> tuple[list[tuple[Place, Entry]], int]:
    """The next `limit` chosen objects after that place, and how many places are left behind them; 0: all of them."""
    objects, places = known
    places, found = _inside(places, chosen, after), list[tuple[Place, Entry]]()
    for index, place in enumerate(places):
        if chosen.takes(place, objects[place].value):
            if limit and len(found) == limit:
                return found, len(places) - index
            found.append((place, objects[place]))
    return found, 0


def _inside(places: Sequence[Place], chosen: Selection, after: tuple[str, ...]) -> Sequence[Place]:
    """Those after that place at which a chosen object may be."""
    first, past, one = bisect_right(places, after), len(places), (chosen.namespace, chosen.name)
    if chosen.namespace:
        first = max(first, bisect_left(places, one))
        past = bisect_right(places, one) if chosen.name else bisect_left(places, (f"{chosen.namespace}\0", ""))
    those = places[first:past]
    return [it for it in those if it[1] == chosen.name] if chosen.name else those


def _then(registry: Registry, resource: Resource, revision: int | None) -> Known:
    try:
        objects = registry.store.objects(resource.name, revision)
    except Compacted as error:
        raise expired("The provided continue parameter is too old to display a consistent list result. You can start a "
                      f"new list without the continue parameter. ({error})") from error
    is_now = revision is None or revision >= registry.store.revision
    return objects, registry.store.places(resource.name) if is_now else sorted(objects)


def _page(registry: Registry, call: Call) -> tuple[int, tuple[str, ...], bool]:
    """The revision to list at, the place to go on from, and whether it must be that revision."""
    match, token = call.query.get("resourceVersionMatch", ""), call.query.get("continue", "")
    asked = call.query.get("resourceVersion", "")
    wrong = None
    if match and (token or not asked):
        wrong = "Forbidden: resourceVersionMatch is forbidden " + (
            "with continue" if token else "unless resourceVersion is provided")
    elif match == "Exact" and asked == "0":
        wrong = 'Forbidden: resourceVersionMatch "Exact" is forbidden for resourceVersion "0"'
    elif match not in ("", "Exact", "NotOlderThan"):
        wrong = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan"'
    if wrong:
        causes = [Cause("resourceVersionMatch", "FieldValueForbidden", wrong)]
        raise invalid("ListOptions", "meta.k8s.io", "", causes=causes)
    if token:
        try:
            page = _page_of(base64.urlsafe_b64decode(token))
            return page.v, page.after, True
        except (ValueError, msgspec.MsgspecError) as error:
            raise bad_request("continue key is not valid") from error
    at = _at(registry, call)
    if asked not in ("", "0") and (match == "Exact" or (call.query.get("limit") and not match)):
        return at, (), True
    return registry.store.revision, (), False


def _at(registry: Registry, call: Call) -> int:
    """The resourceVersion of the query; one that was never reached is answered 504."""
    text = call.query.get("resourceVersion", "") or "0"
    if not text.isdigit():
        raise bad_request(f'invalid resource version "{text}": it must be a whole number')
    if int(text) > registry.store.revision:
        raise too_large(int(text), registry.store.revision)
    return int(text)


def _viewed(registry: Registry, call: Call, things: Iterable[dict[str, Any]]) -> dict[str, Any]:
    if call.view == "Table":
        include = call.query.get("includeObject") or "Metadata"
        return table(call.resource.kind, things, registry.clock.now(), include)
    return _PARTIAL | {"metadata": next(iter(things))["metadata"]}


# -- watch

def watch(registry: Registry, call: Call) -> Response:
    if call.query.get("sendInitialEvents"):  # as a server that cannot: clients list first then
        why = "Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
        causes = [Cause("sendInitialEvents", "FieldValueForbidden", why)]
        raise invalid("ListOptions", "meta.k8s.io", "", causes=causes)
    return Response(200, _JSON, _stream(registry, call, selection(call), _at(registry, call)))


async def _stream(registry: Registry, call: Call, chosen: Selection, position: int) -> AsyncIterator[bytes]:
    store, resource, clock = registry.store, call.resource, registry.clock
    line = _liner(registry, call)
    end = clock.elapsed() + (call.number("timeoutSeconds") or WATCH_SECONDS)
    if not position:
        position, found = store.revision, _listed(_then(registry, resource, None), chosen)[0]
        yield b"".join(line("ADDED", entry.value) for _, entry in found)
    while not store.closed:
        # Asked again after each wait: things also come while a chunk is taken, or at the moment when a wait times out.
        if store.touched.get(resource.name, 0) > position:
            try:
                events = store.since(position, resource.name)
            except Compacted as error:
                yield encode({"type": "ERROR", "object": expired(str(error)).status()}) + b"\n"
                return
            position = store.revision
            if chunk := b"".join(_shown(event, chosen, line) for event in events):
                yield chunk
        elif not await _changes(registry, resource, seconds=min(BOOKMARK_SECONDS, end - clock.elapsed())):
            if call.flag("allowWatchBookmarks"):
                yield line("BOOKMARK", _bookmark(resource, position := store.revision))
            if clock.elapsed() >= end:
                return


async def _changes(registry: Registry, resource: Resource, *, seconds: float) -> bool:
    """Whether the resource changes within that time."""
    before = registry.store.touched.get(resource.name, 0)
    with suppress(TimeoutError):
        await registry.clock.within(seconds, registry.store.changed(resource.name))
    return registry.store.closed or registry.store.touched.get(resource.name, 0) > before


def _shown(event: Event, chosen: Selection, line: Callable[[str, bytes], bytes]) -> bytes:
    place = event.key[1:]
    was = event.before is not None and chosen.takes(place, event.before.value)
    now = not event.gone and chosen.takes(place, event.value)
    if not (was or now):
        return b""
    return line("MODIFIED" if was and now else "ADDED" if now else "DELETED", event.value)


def _bookmark(resource: Resource, revision: int) -> bytes:
    about = {"resourceVersion": str(revision), "creationTimestamp": None}
    return encode({"apiVersion": resource.kind.api_version, "kind": resource.kind.kind, "metadata": about})


def _liner(registry: Registry, call: Call) -> Callable[[str, bytes], bytes]:
    """What makes a line of the stream of an event's type and object."""
    if not call.view:
        encoded = call.resource.encoded
        return lambda word, value: b'{"type":"%b","object":%b}\n' % (word.encode(), encoded(value))

    def line(word: str, value: bytes) -> bytes:
        thing = decode(value)
        viewed = _viewed(registry, call, [thing])
        if call.view == "Table":
            viewed["metadata"] = {"resourceVersion": thing["metadata"]["resourceVersion"]}
            viewed["rows"] = viewed["rows"] if word != "BOOKMARK" else []
        return encode({"type": word, "object": viewed}) + b"\n"

    return line
