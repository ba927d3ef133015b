"""What a Job makes of its pods' ends beyond their number: by exit code, by index, and by which of them succeed."""

import pytest
from test_whole_cluster import holds, job, pods_of, reason

pytestmark = pytest.mark.whole_cluster
INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}


def rule(action: str, *codes: int) -> dict:
    return {"podFailurePolicy": {"rules": [{"action": action, "onExitCodes": {"operator": "In", "values": [*codes]}}]}}


async def test_an_exit_code_that_the_policy_calls_fatal_fails_the_job_at_once(api, jobs, pods):
    await api.create(jobs, job("j", "exit 42", **rule("FailJob", 42)))
    failed = await api.until(jobs, "j", holds("Failed"))
    assert reason(failed, "Failed") == "PodFailurePolicy" and failed["status"]["failed"] == 1
    assert len(await pods_of(api, pods, "j")) == 1


async def test_an_exit_code_that_the_policy_ignores_is_tried_again_and_not_counted(api, jobs, tmp_path):
    script = f"test -e {tmp_path}/again || {{ touch {tmp_path}/again; exit 7; }}"
    await api.create(jobs, job("j", script, backoffLimit=0, **rule("Ignore", 7)))
    done = await api.until(jobs, "j", holds("Complete"))
    assert done["status"]["succeeded"] == 1 and not done["status"].get("failed")


async def test_each_index_has_its_own_limit(api, jobs):
    await api.create(jobs, job("j", "test $JOB_COMPLETION_INDEX != 1", backoffLimitPerIndex=0, **INDEXED))
    failed = await api.until(jobs, "j", holds("Failed"))
    assert reason(failed, "Failed") == "FailedIndexes"
    assert (failed["status"]["completedIndexes"], failed["status"]["failedIndexes"]) == ("0,2", "1")


async def test_an_index_that_the_policy_fails_is_not_tried_again(api, jobs):
    policy = rule("FailIndex", 3)
    await api.create(jobs, job("j", "exit 3", backoffLimitPerIndex=5, maxFailedIndexes=0, **INDEXED, **policy))
    failed = await api.until(jobs, "j", holds("Failed"))
    assert reason(failed, "Failed") == "MaxFailedIndexesExceeded"


async def test_a_job_is_complete_when_the_index_that_counts_has_succeeded(api, jobs):
    policy = {"successPolicy": {"rules": [{"succeededIndexes": "0"}]}}
    await api.create(jobs, job("j", "test $JOB_COMPLETION_INDEX = 0 || exec sleep 1000", **INDEXED, **policy))
    done = await api.until(jobs, "j", holds("Complete"))
    assert reason(done, "SuccessCriteriaMet") == reason(done, "Complete") == "SuccessPolicy"
    assert done["status"]["completedIndexes"] == "0" and not done["status"].get("active")
