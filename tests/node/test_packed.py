"""What the runner keeps of pods that are over."""

import msgspec

from fairway.api.objects import ATTEMPT
from fairway.node.packed import Packed, attempt_of, packed, unpacked

POD = {
    "metadata": {"name": "a", "namespace": "default", "uid": "1", "annotations": {ATTEMPT: "job-a/2/1"}},
    "spec": {"containers": [{"name": "main", "command": ["true"]}]},
    "status": {"phase": "Succeeded"},
}


def test_a_pod_that_is_over_is_packed_and_reads_as_it_was_written() -> None:
    kept = packed(POD)
    assert isinstance(kept, Packed) and unpacked(kept) == POD == dict(kept)
    assert attempt_of(kept) == attempt_of(POD) == "job-a/2/1"


def test_a_pod_that_runs_is_kept_as_it_is() -> None:
    pod = msgspec.json.decode(msgspec.json.encode(POD)) | {"status": {"phase": "Running"}}
    assert packed(pod) is pod and unpacked(pod) is pod
