import logging
from fairway.clock import VirtualClock, seeded
from simworld import *
from fairway.engine import *

def test_a_job_runs():
    clock = VirtualClock(1_800_000_000.0)
    logging.basicConfig(level=10)
    async def story():
        async with cluster(clock, seeded(1), node("n1")) as world:
            world.start()
            await world.apply(job("a"))
            async def done():
                j = await world.job("a")
                return any(c["type"]=="Complete" for c in j["status"].get("conditions",()))
            try:
                await world.until(done, seconds=300)
            finally:
                for k in (kinds.QUEUES, kinds.JOBS, kinds.PODS, kinds.WORKLOADS, kinds.EVENTS):
                    for o in await world.client.list(Selection(k)):
                        print({**o, "metadata": {**o["metadata"], "managedFields":0}})
            return await world.workload("job-a")
    w = clock.run(story())
    assert w["status"]["phase"]=="Succeeded"
