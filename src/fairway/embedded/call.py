"""One request, read: which object or objects of which kind, by whom, and how the answer is wanted.

Paths are those of Kubernetes: /api/v1 or /apis/GROUP/VERSION, then [namespaces/NAMESPACE/]PLURAL[/NAME[/SUBRESOURCE]].
Bodies are JSON, or the protobuf of the few kinds that kubectl posts so; answers are JSON, plain, as a Table, or as
metadata only.
"""

import json
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from fairway.embedded import limits, protobuf
from fairway.embedded.access.identity import Identity
from fairway.embedded.catalog import Catalog, Resource
from fairway.embedded.errors import Failure, bad_request, unsupported_media
from fairway.embedded.managed import APPLY, UPDATE, Manager
from fairway.embedded.registry import Write
from fairway.embedded.store import Key
from fairway.kube.transport import Request

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
APPLY_YAML = "application/apply-patch+yaml"
_OF_NAMESPACES = ("status", "finalize")


@dataclass(frozen=True, slots=True)
class Call:
    request: Request
    resource: Resource
    namespace: str
    name: str
    subresource: str
    asker: Identity
    query: dict[str, str]

    @property
    def user(self) -> str:
        return self.asker.name

    @property
    def method(self) -> str:
        return self.request.method

    @property
    def view(self) -> str:
        """How the answer is wanted: "" (plain), "Table" or "PartialObjectMetadata"."""
        return _view(self.request)

    @property
    def key(self) -> Key:
        return Key(self.resource.name, self.namespace, self.name)

    def number(self, name: str) -> int | None:
        text = self.query.get(name, "")
        if not text:
            return None
        if not text.lstrip("-").isdigit():
            raise bad_request(f'invalid value "{text}" for {name}: a whole number is needed')
        return int(text)

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") not in ("", "false", "0")

    def with_body(self, thing: dict[str, Any]) -> "Call":
        """The same call, carrying JSON."""
        request = replace(self.request, headers={"content-type": JSON}, body=msgspec.json.encode(thing))
        return replace(self, request=request)

    def thing(self) -> dict[str, Any]:
        """The body, an object of the API."""
        media = self.media
        try:
            if media == PROTOBUF:
                return protobuf.decode(self.request.body)
            if media not in ("", JSON):
                raise unsupported_media(JSON, PROTOBUF)
            thing = limits.decode(self.request.body)
            self._check_repeats()
        except msgspec.DecodeError as error:
            raise bad_request(f"couldn't get version/kind; json parse error: {error}") from error
        except ValueError as error:
            raise unsupported_media(JSON) from error
        if not isinstance(thing, dict):
            raise bad_request(f"the body is no object of the API, but of type {type(thing).__name__}")
        if not isinstance(thing.setdefault("metadata", {}), dict):
            raise bad_request("metadata is no object")
        return thing

    def _check_repeats(self) -> None:
        """Only where strictness is asked for: it costs as much as all the rest."""
        if self.query.get("fieldValidation") == "Strict" and (paths := repeated(self.request.body)):
            texts = ", ".join(f'duplicate field "{path}"' for path in paths)
            raise bad_request(f"strict decoding error: {texts}")

    def write(self) -> Write:
        dry_run, validation = self.query.get("dryRun", ""), self.query.get("fieldValidation") or "Warn"
        if dry_run not in ("", "All"):
            raise bad_request(f'Invalid value: "{dry_run}": dryRun: supported values: "All"')
        if validation not in ("Strict", "Warn", "Ignore"):
            raise bad_request(f'Invalid value: "{validation}": fieldValidation: supported values: "Ignore", "Strict", '
                              '"Warn"')
        return Write(self.resource, self.asker, dry_run == "All", validation, who=self._manager())

    @property
    def media(self) -> str:
        """Of the body."""
        return self.request.headers.get("content-type", "").partition(";")[0].strip()

    def _manager(self) -> Manager:
        """By the name it gives, its program's, or its user's."""
        agent = self.request.headers.get("user-agent", "").partition("/")[0]
        name = self.query.get("fieldManager") or agent or self.user.rpartition(":")[2]
        operation = APPLY if self.method == "PATCH" and self.media == APPLY_YAML else UPDATE
        return Manager(name, operation, self.resource.kind.api_version, self.subresource)


MOST_REPEATS = 32


class _Fields(dict[str, Any]):
    """An object of JSON, with the paths of the fields that it, or one in it, holds twice."""

    repeats: list[str]


def repeated(body: bytes) -> list[str]:
    """The fields that stand twice, of which JSON keeps the last; as paths, the first MOST_REPEATS."""
    def fields(pairs: list[tuple[str, Any]]) -> _Fields:
        found, seen = _Fields(pairs), set[str]()
        found.repeats = [name for name, _ in pairs if name in seen or seen.add(name)][:MOST_REPEATS]
        for name, value in pairs:
            for place, each in enumerate(value) if isinstance(value, list) else [(-1, value)]:
                where = name if place < 0 else f"{name}[{place}]"
                found.repeats += [f"{where}.{path}" for path in getattr(each, "repeats", ())]
        del found.repeats[MOST_REPEATS:]
        return found

    return getattr(json.loads(body, object_pairs_hook=fields, parse_int=str), "repeats", [])


def read(request: Request, catalog: Catalog, asker: Identity) -> Call | None:
    """None: the path leads nowhere."""
    match request.path.strip("/").split("/"):
        case ["api", "v1", *rest] if rest:
            group, version = "", "v1"
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and (group or rest[2] not in _OF_NAMESPACES):
        _, namespace, *rest = rest
    resource = catalog.find(group, version, rest[0])
    if resource is None or len(rest) > 3 or (namespace and not resource.kind.namespaced):
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    if name and resource.kind.namespaced and not namespace:
        return None
    return Call(request, resource, namespace, name, subresource, asker, dict(request.query))


def _view(request: Request) -> str:
    """The first form of answer that is accepted and known."""
    accepted = request.headers.get("accept") or "*/*"
    for each in accepted.split(","):
        media, *parameters = (part.strip() for part in each.split(";"))
        if media not in (JSON, "*/*"):
            continue
        wanted = dict(part.split("=", 1) for part in parameters if "=" in part)
        if "as" not in wanted:
            return ""
        if wanted.get("g") == "meta.k8s.io" and wanted.get("v") == "v1":
            view = wanted["as"].removesuffix("List")
            if view in ("Table", "PartialObjectMetadata"):
                return view
    raise Failure(406, "NotAcceptable", f"only the following media types are accepted: {JSON}")
