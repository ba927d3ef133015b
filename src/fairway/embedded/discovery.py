"""What a client asks before it asks for anything: which groups, versions and kinds there are, and how they look.

Discovery is answered in both forms, plain and aggregated; OpenAPI v3 in an index with a document per group and
version, whose hash is in its address, so that clients keep it until it changes. The documents hold the structure of
the kinds and what kubectl looks for before it trusts a server with validation: operations that name their kind, and a
PATCH that takes `fieldValidation`. OpenAPI v2 is empty: nothing needs more of it than that it is there.
Everything is a function of the kinds, which are compared by identity; documents are remembered for them.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from fairway.embedded.kinds import Kind
from fairway.embedded.metrics import measured
from fairway.kube.transport import Response

VERSION = {  # of the API; within one minor of the clients in use, none of which warns of it
    "major": "1", "minor": "33", "gitVersion": "v1.33.0+fairway", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z", "goVersion": "", "compiler": "", "platform": "",
}
_READ, _WRITE = ("get", "list", "watch"), ("create", "update", "patch", "delete", "deletecollection")
_PATCHES = ("application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
            "application/apply-patch+yaml")
_PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_SUBRESOURCES: Mapping[str, tuple[tuple[str, str, str], tuple[str, ...]]] = {  # (group, version, kind), verbs
    "binding": (("", "v1", "Binding"), ("create",)),
    "eviction": (("policy", "v1", "Eviction"), ("create",)),
    "exec": (("", "v1", "PodExecOptions"), ("create", "get")),
    "attach": (("", "v1", "PodAttachOptions"), ("create", "get")),
    "portforward": (("", "v1", "PodPortForwardOptions"), ("create", "get")),
    "log": (("", "v1", "Pod"), ("get",)),
    "scale": (("autoscaling", "v1", "Scale"), ("get", "patch", "update")),
    "token": (("authentication.k8s.io", "v1", "TokenRequest"), ("create",)),
}
_encode = msgspec.json.Encoder().encode
Query = Iterable[tuple[str, str]]


def discover(kinds: Sequence[Kind], path: str, headers: Mapping[str, str], query: Query = ()) -> Response | None:
    """The answer to a GET of `path`, or None where that is no path of discovery."""
    whole = (*kinds, *measured())
    match path.strip("/").split("/"):
        case [""]:
            return _json({"paths": ["/api", "/apis", "/openapi/v2", "/openapi/v3", "/version", *_places(kinds)]})
        case ["version"]:
            return _json(VERSION)
        case ["openapi", "v2"]:
            return _empty_v2(headers)
        case ["openapi", "v3"]:
            return _index(kinds)
        case ["openapi", "v3", *rest]:
            return _document_of(_places(kinds).get("/" + "/".join(rest), ()), query)
        case ["api"] | ["apis"] as root:
            return _aggregated(whole, root[0], headers) or _plain(whole, root[0])
        case ["apis", group]:
            return _group_of(whole, group)
        case ["api", _] | ["apis", _, _]:
            place = _places(whole).get("/" + path.strip("/"))
            return _json(_resources(place)) if place else None
    return None


def _json(value: Any, *, media: str = "application/json", **headers: str) -> Response:
    return Response(200, {"content-type": media} | headers, value if isinstance(value, bytes) else _encode(value))


def _places(kinds: Iterable[Kind]) -> dict[str, tuple[Kind, ...]]:
    """The kinds of each group and version, by their path: /api/v1, /apis/batch/v1."""
    places: dict[str, tuple[Kind, ...]] = {}
    for kind in kinds:
        path = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        places[path] = (*places.get(path, ()), kind)
    return places


def _groups(kinds: Iterable[Kind], root: str) -> dict[str, dict[str, list[Kind]]]:
    """Group -> version, the preferred one first -> kinds, of the core group or of all others."""
    groups: dict[str, dict[str, list[Kind]]] = {}
    for kind in kinds:
        if bool(kind.group) == (root == "apis"):
            groups.setdefault(kind.group, {}).setdefault(kind.version, []).append(kind)
    return {group: {version: versions[version] for version in sorted(versions, key=_rank)}
            for group, versions in groups.items()}


def _rank(version: str) -> tuple[int, int, int, str]:
    """The order of preference: v2, v1, v1beta2, v1beta1, v1alpha1, then all else by the alphabet."""
    if found := re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version):
        number, stage, step = found.groups()
        return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(number), -int(step or 0), "")
    return (3, 0, 0, version)


def _plain(kinds: Sequence[Kind], root: str) -> Response:
    if root == "api":
        return _json({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
    groups = [_group(group, versions) for group, versions in _groups(kinds, root).items()]
    return _json({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})


def _group_of(kinds: Sequence[Kind], group: str) -> Response | None:
    versions = _groups(kinds, "apis").get(group)
    return _json({"kind": "APIGroup", "apiVersion": "v1"} | _group(group, versions)) if versions else None


def _group(group: str, versions: Iterable[str]) -> dict[str, Any]:
    named = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": named, "preferredVersion": named[0]}


def _resources(kinds: Sequence[Kind]) -> dict[str, Any]:
    """The APIResourceList of one group and version."""
    entries: list[dict[str, Any]] = []
    for kind in kinds:
        entries.append({
            "name": kind.plural, "singularName": kind.singular, "namespaced": kind.namespaced, "kind": kind.kind,
            "verbs": _verbs(kind), "shortNames": kind.short, "categories": kind.categories})
        for name, about, verbs in _subresources(kind):
            entries.append({"name": f"{kind.plural}/{name}", "singularName": "", "namespaced": kind.namespaced,
                            "verbs": verbs} | about)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": kinds[0].api_version, "resources": entries}


def _verbs(kind: Kind) -> tuple[str, ...]:
    if kind in measured():
        return _READ[:2]
    return _READ + _WRITE if kind.stored else ("create",)


def _subresources(kind: Kind) -> Iterable[tuple[str, dict[str, str], tuple[str, ...]]]:
    """Name, group-version-kind and verbs of each."""
    own = (kind.group, kind.version, kind.kind)
    for name in sorted(kind.subresources):
        gvk, verbs = _SUBRESOURCES.get(name, (own, ("get", "patch", "update")))
        yield name, dict(zip(("group", "version", "kind"), gvk, strict=True)), verbs


def _aggregated(kinds: Sequence[Kind], root: str, headers: Mapping[str, str]) -> Response | None:
    """All groups with all they have, if the client asks for that."""
    asked = re.search(r"v=(v2|v2beta1);as=APIGroupDiscoveryList", headers.get("accept", ""))
    if asked is None:
        return None
    items = [{"metadata": {"name": group}, "versions": [
        {"version": version, "freshness": "Current", "resources": list(map(_aggregated_resource, members))}
        for version, members in versions.items()]} for group, versions in _groups(kinds, root).items()]
    return _json({"kind": "APIGroupDiscoveryList", "apiVersion": f"apidiscovery.k8s.io/{asked[1]}", "metadata": {},
                  "items": items}, media=f"application/json;g=apidiscovery.k8s.io;{asked[0]}")


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    return {
        "resource": kind.plural, "singularResource": kind.singular, "verbs": _verbs(kind),
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "shortNames": kind.short, "categories": kind.categories,
        "subresources": [{"subresource": name, "responseKind": about, "verbs": verbs}
                         for name, about, verbs in _subresources(kind)],
    }


def _empty_v2(headers: Mapping[str, str]) -> Response:
    if "protobuf" in headers.get("accept", ""):
        return _json(b"", media=_PROTOBUF_V2)
    return _json({"swagger": "2.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]}, "paths": {}})


def _index(kinds: Sequence[Kind]) -> Response:
    return _json({"paths": {place[1:]: {"serverRelativeURL": f"/openapi/v3{place}?hash={_document(members)[0]}"}
                            for place, members in _places(kinds).items()}})


def _document_of(kinds: tuple[Kind, ...], query: Query) -> Response | None:
    """A document asked for by its hash never changes."""
    if not kinds:
        return None
    digest, body = _document(kinds)
    lasting = {"cache-control": "public, max-age=31536000, immutable"} if ("hash", digest) in query else {}
    return _json(body, etag=f'"{digest}"', **lasting)


@lru_cache(maxsize=128)
def _document(kinds: tuple[Kind, ...]) -> tuple[str, bytes]:
    """The OpenAPI v3 document of one group and version, and its hash."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for kind in kinds:
        name = _definition(kind, schemas)
        root = f"/apis/{kind.api_version}" if kind.group else f"/api/{kind.version}"
        place = f"{root}/namespaces/{{namespace}}/{kind.plural}" if kind.namespaced else f"{root}/{kind.plural}"
        paths |= _paths(kind, place, {"schema": {"$ref": f"#/components/schemas/{name}"}})
    body = _encode({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION["gitVersion"]},
                    "paths": paths, "components": {"schemas": schemas}})
    return hashlib.sha256(body).hexdigest()[:32].upper(), body


def _definition(kind: Kind, schemas: dict[str, Any]) -> str:
    """Puts the kind and all it refers to into `schemas`, and answers its name."""
    if _is_builtin(kind):
        _refer(kind.schema, schemas)
        return str(kind.schema["title"])
    name = ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])
    schemas[name] = _referring(kind.schema, schemas) | {"x-kubernetes-group-version-kind": [
        {"group": kind.group, "version": kind.version, "kind": kind.kind}]}
    return name


def _is_builtin(kind: Kind) -> bool:
    return str(kind.schema.get("title", "")).startswith("io.k8s.")


def _refer(node: Any, schemas: dict[str, Any]) -> Any:
    """`node` with references for the named definitions in it, which go into `schemas`; patch rules stay beside."""
    if not isinstance(node, dict) or not str(node.get("title", "")).startswith("io.k8s."):
        return _referring(node, schemas)
    beside = {key: value for key, value in node.items() if key.startswith("x-kubernetes-patch-")}
    name = node["title"]
    if name not in schemas:
        schemas[name] = {}
        schemas[name] = _referring({key: node[key] for key in node.keys() - beside.keys() - {"title"}}, schemas)
    reference = {"$ref": f"#/components/schemas/{name}"}
    return {"allOf": [reference]} | beside if beside else reference


def _referring(node: Any, schemas: dict[str, Any]) -> Any:
    if isinstance(node, dict):
        return {key: _refer(value, schemas) for key, value in node.items()}
    return [_refer(each, schemas) for each in node] if isinstance(node, list) else node


def _paths(kind: Kind, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    """The operations on a collection and on one object of it."""
    about = {"x-kubernetes-group-version-kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
             "responses": {"200": {"description": "OK", "content": {"application/json": schema}}}}
    asks = {"parameters": [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
                           for name in ("dryRun", "fieldManager", "fieldValidation")]}

    def operation(action: str, *medias: str) -> dict[str, Any]:
        body = {"requestBody": {"required": True, "content": dict.fromkeys(medias, schema)}} | asks if medias else {}
        return {"x-kubernetes-action": action} | about | body

    post = {"post": operation("post", "application/json")}
    if not kind.stored:
        return {place: post}
    patches = _PATCHES if _is_builtin(kind) else (*_PATCHES[:2], _PATCHES[3])
    return {
        place: {"get": operation("list"), "delete": operation("deletecollection")} | post,
        place + "/{name}": {"get": operation("get"), "put": operation("put", "application/json"),
                            "patch": operation("patch", *patches), "delete": operation("delete")},
    }
