"""Loads from distributions: the same for a seed, contended, and true to their word."""

import pytest

from fairway.sim.synthetic import ESTIMATES, generate, synthetic_names


@pytest.mark.parametrize("name", synthetic_names())
def test_a_seed_gives_the_same_load_again_and_another_seed_another(name: str) -> None:
    assert generate(name, 3) == generate(name, 3)
    assert generate(name, 3).jobs != generate(name, 4).jobs


@pytest.mark.parametrize("name", synthetic_names())
def test_a_load_is_sorted_contended_and_fits_its_cluster(name: str) -> None:
    load = generate(name, 1)
    submits = [job.submit for job in load.jobs]
    gpus = 8 * len(load.nodes)
    work = sum(job.duration * job.total_gpus for job in load.jobs)
    assert submits == sorted(submits) and len({job.id for job in load.jobs}) == len(load.jobs)
    assert all(0 < job.total_gpus <= gpus for job in load.jobs)
    assert 0.6 < work / (gpus * submits[-1]) < 1.0


def test_estimates_are_round_and_never_too_short() -> None:
    jobs = generate("estimates", 1).jobs
    assert all(job.estimate in ESTIMATES and job.estimate >= min(job.duration, ESTIMATES[-1]) for job in jobs)


def test_some_users_give_up_and_the_rest_is_the_box() -> None:
    box, load = generate("box", 1), generate("impatient", 1)
    patient = [job.patience for job in load.jobs if job.patience is not None]
    assert 0 < len(patient) < len(load.jobs) / 4 and min(patient) > 0
    assert [(job.id, job.submit, job.duration) for job in load.jobs] == [
        (job.id, job.submit, job.duration) for job in box.jobs
    ]


def test_nodes_fail_and_come_back() -> None:
    outages = generate("failures", 1).outages
    assert outages and all(one.start < one.end for one in outages)
