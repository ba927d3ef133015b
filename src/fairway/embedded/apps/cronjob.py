"""CronJob: a Job at each moment of a schedule.

A Job is named after its minute, so it is made once over any number of crashes. Of the moments that were missed (the
cluster was down, the CronJob suspended) only the last is made good, within `startingDeadlineSeconds` where that is set.
`concurrencyPolicy`: Allow; Forbid leaves a moment out while an earlier Job runs; Replace deletes that one first.
"""

from fairway.api.quantities import time, time_text
from fairway.kube import kinds
from fairway.kube.client import Client
from fairway.kube.turnstile import side_by_side

from .control import CRON_JOBS, Control, Object, Thing
from .schedule import moments

SCHEDULED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
SUCCESSFUL, FAILED = 3, 1


class CronJobs(Control[Object]):
    kind, child = CRON_JOBS, kinds.JOBS

    def __init__(self, client: Client) -> None:
        super().__init__(client, Object)

    async def settle(self, one: Object, children: list[Object]) -> float | None:
        jobs = [job for job in children if not job.metadata.deletion_timestamp]
        active = [job for job in jobs if not _ended(job)]
        await self._clear(one, [job for job in jobs if _ended(job)])
        now, spec = self.clock.now(), one.spec
        try:
            last, again = moments(spec["schedule"], spec.get("timeZone", ""), now)
        except (ValueError, OSError, KeyError) as error:
            self.tell(one, "InvalidSchedule", str(error), is_warning=True)
            return None
        shown: Thing = {"active": [_reference(job) for job in active] or None}
        done = [ended for job in jobs if _ended(job) == "Complete" and (ended := job.status.get("completionTime"))]
        shown |= {"lastSuccessfulTime": max(done)} if done else {}
        if self._is_due(one, last, now) and await self._begin(one, active, last):
            shown["lastScheduleTime"] = time_text(last)
        await self.show(one, shown)
        return again

    def _is_due(self, one: Object, last: float, now: float) -> bool:
        """Whether the last moment of the schedule is to be made good."""
        before = one.status.get("lastScheduleTime") or one.metadata.creation_timestamp
        if one.spec.get("suspend") or (before and last <= time(before)):
            return False
        deadline = one.spec.get("startingDeadlineSeconds")
        if deadline is not None and now > last + deadline:
            self.tell(one, "MissSchedule", f"Missed scheduled time to start a job: {time_text(last)}", is_warning=True)
            return False
        return True

    async def _begin(self, one: Object, active: list[Object], last: float) -> bool:
        """Makes the Job of a moment, unless one that runs forbids it."""
        policy = one.spec.get("concurrencyPolicy", "Allow")
        if active and policy == "Forbid":
            self.tell(one, "JobAlreadyActive", "Not starting job because prior execution is running and concurrency "
                      "policy is Forbid")
            return False
        if policy == "Replace":
            await side_by_side(self.unmake(one, job) for job in active)
        await self.make(one, _job(one, last))
        return True

    async def _clear(self, one: Object, ended: list[Object]) -> None:
        """Of the Jobs that ended, the last few are kept."""
        for state, field, usual in (("Complete", "successfulJobsHistoryLimit", SUCCESSFUL),
                                    ("Failed", "failedJobsHistoryLimit", FAILED)):
            own = sorted((job for job in ended if _ended(job) == state), key=_made)
            await side_by_side(self.unmake(one, job) for job in own[: max(0, len(own) - one.spec.get(field, usual))])


def _made(job: Object) -> str:
    return job.metadata.creation_timestamp or ""


def _ended(job: Object) -> str:
    """Complete or Failed; empty while it goes on."""
    held = [each["type"] for each in job.status.get("conditions") or () if each["status"] == "True"]
    return next((name for name in held if name in ("Complete", "Failed")), "")


def _reference(job: Object) -> Thing:
    meta = job.metadata
    return {"apiVersion": "batch/v1", "kind": "Job", "name": meta.name, "namespace": meta.namespace, "uid": meta.uid}


def _job(one: Object, moment: float) -> Thing:
    template = one.spec["jobTemplate"]
    about = template.get("metadata") or {}
    notes = {**about.get("annotations", {}), SCHEDULED: time_text(moment)}
    meta = {"name": f"{one.metadata.name}-{int(moment) // 60}", "labels": about.get("labels", {}), "annotations": notes}
    return {"metadata": meta, "spec": template["spec"]}
