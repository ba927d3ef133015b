"""The questions about users: who am I, may I, may that user, what may I, whose token is this. They are not stored.

May that user (SubjectAccessReview) and whose token (TokenReview) are asked by who has the right to create these kinds;
the questions about oneself everybody has. An answer is what the server would do at that moment.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fairway.embedded.access.ask import Ask
from fairway.embedded.access.identity import Identity
from fairway.embedded.access.rbac import ALL, Authorizer, Rule
from fairway.embedded.access.tokens import ISSUER
from fairway.embedded.call import Call
from fairway.embedded.errors import Cause, invalid, required, wrong
from fairway.embedded.store import encode
from fairway.kube.transport import Response

Thing = dict[str, Any]
Whose = Callable[[str, str], Identity | None]
"""A token and the audience it was given to → whose it is."""
_EITHER = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_MASTER = Rule(frozenset((ALL,)), frozenset((ALL,)), frozenset((ALL,)), frozenset(), ())
_MASTER_PATHS = Rule(frozenset((ALL,)), frozenset(), frozenset(), frozenset(), (ALL,))


def answer(access: Authorizer, call: Call, whose: Whose) -> Response:
    """The answer to a review that is created; `whose` knows tokens."""
    thing = call.thing()
    spec = thing.get("spec") if isinstance(thing.get("spec"), dict) else {}
    if call.resource.kind.plural == "tokenreviews":
        status = _token(whose, call, spec or {})
    else:
        status = _ANSWERS[call.resource.kind.plural](access, call, spec or {})
    whole = call.resource.ordered(thing | {"status": status})
    whole["metadata"].setdefault("creationTimestamp", None)
    return Response(201, {"content-type": "application/json"}, encode(whole))


def _who(access: Authorizer, call: Call, spec: Thing) -> Thing:
    return {"userInfo": call.asker.info()}


def _may_i(access: Authorizer, call: Call, spec: Thing) -> Thing:
    return _allowed(access, call.asker, _ask(call, spec))


def _may_that(access: Authorizer, call: Call, spec: Thing) -> Thing:
    user, groups = spec.get("user") or "", tuple(spec.get("groups") or ())
    ask = _ask(call, spec)
    if not user and not groups:
        raise _invalid(call, required("spec.user", "at least one of user or group must be specified"))
    if call.namespace and (ask.path or ask.namespace != call.namespace):
        raise _invalid(call, wrong("spec.resourceAttributes.namespace", ask.namespace, "must match metadata.namespace"))
    extra = {key: tuple(values) for key, values in (spec.get("extra") or {}).items()}
    return _allowed(access, Identity(user, groups, spec.get("uid") or "", extra), ask)


def _allowed(access: Authorizer, who: Identity, ask: Ask) -> Thing:
    allowed, why = access.allows(who, ask)
    return {"allowed": allowed} | ({"reason": why} if why else {})


def _ask(call: Call, spec: Thing) -> Ask:
    of, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (of is None) == (path is None):
        raise _invalid(call, wrong("spec.resourceAttributes", of, _EITHER))
    if path is not None:
        return Ask(path.get("verb") or "", path=path.get("path") or "")
    fields = ("verb", "group", "resource", "subresource", "namespace", "name")
    return Ask(*((of or {}).get(name) or "" for name in fields))


def _what_may_i(access: Authorizer, call: Call, spec: Thing) -> Thing:
    space, who = spec.get("namespace") or "", call.asker
    held = access.held(who)
    rules = [*([_MASTER, _MASTER_PATHS] if who.is_master else ()), *(each.rule for each in held.grants(space))]
    faults = held.faults(space)
    return {
        "resourceRules": [each.said() for each in rules if not each.paths],
        "nonResourceRules": [each.said() for each in rules if each.paths],
        "incomplete": bool(faults),
    } | ({"evaluationError": faults} if faults else {})


def _token(whose: Whose, call: Call, spec: Thing) -> Thing:
    token = spec.get("token")
    if not token:
        raise _invalid(call, required("spec.token"))
    found = {each: who for each in spec.get("audiences") or [ISSUER] if (who := whose(token, each))}
    if not found:
        return {"authenticated": False, "error": "the token is not known, expired, or for another audience"}
    return {"authenticated": True, "user": next(iter(found.values())).info(), "audiences": list(found)}


def _invalid(call: Call, cause: Cause) -> Exception:
    kind = call.resource.kind
    return invalid(kind.kind, kind.group, "", causes=[cause])


_ANSWERS: Mapping[str, Callable[[Authorizer, Call, Thing], Thing]] = {
    "selfsubjectreviews": _who, "selfsubjectaccessreviews": _may_i, "subjectaccessreviews": _may_that,
    "localsubjectaccessreviews": _may_that, "selfsubjectrulesreviews": _what_may_i,
}  # fmt: skip
