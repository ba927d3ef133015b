"""What kubectl posted in protobuf (recorded from kubectl 1.33) is what it says it would create (`--dry-run=client`)."""

import base64
import json
import random
from pathlib import Path

import pytest

from fairway.embedded.protobuf import decode

RECORDED = json.loads(Path(__file__).with_name("kubectl_bodies.json").read_text())
BODIES = {each["command"]: base64.b64decode(each["body"]) for each in RECORDED}


def said(value):
    """`value` without what says nothing: nulls, empty objects, and status, which nobody creates."""
    if isinstance(value, dict):
        kept = {key: said(each) for key, each in value.items() if key != "status"}
        return {key: each for key, each in kept.items() if each not in (None, {})}
    return [said(each) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize("each", [each for each in RECORDED if each["object"]], ids=lambda each: each["command"])
def test_a_body_of_kubectl_create_is_the_object_that_it_shows(each):
    assert said(decode(base64.b64decode(each["body"]))) == said(each["object"])


def test_auth_can_i_asks_its_question():
    review = decode(BODIES["auth can-i create pods"])
    assert review["kind"] == "SelfSubjectAccessReview"
    assert review["spec"] == {"resourceAttributes": {"namespace": "default", "verb": "create", "resource": "pods"}}
    assert decode(BODIES["auth can-i --list"])["spec"] == {"namespace": "default"}
    assert decode(BODIES["auth whoami"])["kind"] == "SelfSubjectReview"


def test_zeros_that_were_said_are_kept_and_those_that_were_not_are_dropped():
    spec = decode(BODIES["create job again --from=cronjob/nightly"])["spec"]
    assert spec["backoffLimit"] == 0 and spec["template"]["spec"]["terminationGracePeriodSeconds"] == 0
    assert spec["template"]["spec"]["tolerations"][0]["tolerationSeconds"] == 0
    assert "hostNetwork" not in spec["template"]["spec"] and "tty" not in spec["template"]["spec"]["containers"][0]


def envelope(api_version: str, kind: str, message: bytes) -> bytes:
    def field(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value
    return b"k8s\0" + field(1, field(1, api_version.encode()) + field(2, kind.encode())) + field(2, message)


def test_delete_options_belong_to_every_group():
    assert decode(envelope("batch/v1", "DeleteOptions", b"\x08\x05\x22\x06Orphan")) == {
        "apiVersion": "batch/v1", "kind": "DeleteOptions", "gracePeriodSeconds": 5, "propagationPolicy": "Orphan"}


def test_numbers_may_be_negative_and_moments_are_rfc_3339():
    lease = b"\x12\x0e\x10" + b"\xff" * 9 + b"\x01" + b"\x1a\x01\x00"
    with pytest.raises(ValueError):
        decode(envelope("coordination.k8s.io/v1", "Lease", lease))
    lease = b"\x12\x14\x10" + b"\xff" * 9 + b"\x01" + b"\x1a\x07\x08\x80\x89\x7a\x10\xe8\x07"
    assert decode(envelope("coordination.k8s.io/v1", "Lease", lease))["spec"] == {
        "leaseDurationSeconds": -1, "acquireTime": "1970-01-24T03:33:20.000001Z"}


def test_unknown_kinds_and_other_bodies_are_refused():
    for body in (envelope("example.com/v1", "Whale", b""), envelope("batch/v2", "Job", b""), b"", b"{}", b"k8s\0",
                 BODIES["auth whoami"][:-3]):
        with pytest.raises(ValueError):
            decode(body)


@pytest.mark.parametrize("command", list(BODIES))
def test_damaged_bodies_are_read_or_refused_and_nothing_else(command):
    chance, body = random.Random(command), BODIES[command]
    answered = 0
    for _ in range(500):
        damaged = bytearray(body)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(4, len(body))] = chance.randrange(256)
        try:
            answered += isinstance(decode(bytes(damaged)), dict)
        except ValueError:
            answered += 1
    assert answered == 500
