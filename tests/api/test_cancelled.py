"""The record of a cancelled workload: read as it is written, and of its own namespace alone."""

import msgspec
import pytest

from fairway.api.cancelled import Record
from fairway.api.objects import Metadata, OwnerReference
from fairway.api.types import WorkloadObject, WorkloadSpec
from fairway.controllers.workloads import cancelled


def test_a_record_is_read_as_it_is_written() -> None:
    meta = Metadata("job-a", "nlp", owner_references=(OwnerReference("Job", "a"),))
    about, _, message = cancelled(WorkloadObject(meta, WorkloadSpec(queue="q", user="ann")))
    event = {"metadata": {"namespace": "nlp", "annotations": dict(about.notes)}, "message": message,
             "involvedObject": {"name": about.name, "namespace": about.namespace}}  # fmt: skip
    left = msgspec.convert(event, Record)
    assert (left.name, left.owner, left.message) == ("job-a", ("Job", "a"), "cancelled while it waited")
    assert (left.metadata.annotations.queue, left.metadata.annotations.user) == ("q", "ann")


@pytest.mark.parametrize("about", [{"namespace": "vision"}, {}])
def test_a_record_about_another_namespace_than_its_own_is_malformed(about: dict[str, str]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"involvedObject\.namespace: found"):
        msgspec.convert({"metadata": {"namespace": "nlp"}, "involvedObject": about}, Record)
