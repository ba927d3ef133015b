"""What a request asks to do, in the words of RBAC: a verb on a resource, or on a path that is none.

It is read from the method and the path alone, as kube-apiserver does it, so that also what is not served can be
refused. The verb for a collection is list, watch or deletecollection; a field selector on metadata.name names the
object.
"""

import re
from dataclasses import dataclass

from fairway.embedded.access.identity import Identity
from fairway.embedded.errors import Failure, named
from fairway.kube.transport import Request

_VERBS = {"POST": "create", "GET": "get", "HEAD": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_OF_NAMESPACES = ("status", "finalize")
_NAME = re.compile(r"(?:^|,)metadata\.name==?([^,!=]+)(?:,|$)")
_FALSE = ("", "0", "false")


@dataclass(frozen=True, slots=True)
class Ask:
    """`path` is that of a request for no resource; then only the verb is set beside it."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def whole(self) -> str:
        """The resource with its subresource, as rules name it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource


def asked(request: Request) -> Ask:
    """What `request` asks to do."""
    match request.path.strip("/").split("/"):
        case ["api", _, *rest] if rest:
            group = ""
        case ["apis", group, _, *rest] if rest:
            pass
        case _:
            return Ask(request.method.lower(), path=request.path)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
        if len(rest) > 2 and (group or rest[2] not in _OF_NAMESPACES):
            rest = rest[2:]
    resource, name, subresource = (*rest[:3], "", "")[:3]
    verb = _VERBS.get(request.method, request.method.lower())
    if not name and verb in ("get", "delete"):
        verb, name = _of_many(request, verb)
    return Ask(verb, group, resource, subresource, namespace, name)


def _of_many(request: Request, verb: str) -> tuple[str, str]:
    """The verb for a collection, and the one name that is selected."""
    query = dict(request.query)
    found = _NAME.search(query.get("fieldSelector", ""))
    if verb == "get":
        verb = "watch" if query.get("watch", "") not in _FALSE else "list"
    else:
        verb = "deletecollection"
    return verb, found[1] if found else ""


def forbidden(who: Identity, ask: Ask, why: str = "") -> Failure:
    """What answers a user who may not; `why`: what else there is to know."""
    if ask.path:
        text = f'User "{who.name}" cannot {ask.verb} path "{ask.path}"'
    else:
        where = f'in the namespace "{ask.namespace}"' if ask.namespace else "at the cluster scope"
        text = f'User "{who.name}" cannot {ask.verb} resource "{ask.whole}" in API group "{ask.group}" {where}'
    text += f": {why}" if why else ""
    if ask.path:
        return Failure(403, "Forbidden", f"forbidden: {text}", details={})
    quoted = f'{named(ask.resource, ask.group)} "{ask.name}"' if ask.name else named(ask.resource, ask.group)
    about = {"name": ask.name, "group": ask.group, "kind": ask.resource}
    details = {key: value for key, value in about.items() if value}
    return Failure(403, "Forbidden", f"{quoted} is forbidden: {text}", details=details)
