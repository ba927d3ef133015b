"""Every command line of the pages for newcomers runs as it is written, page by page, or is named here with the reason
why not. A page is run from its top to its end in one shell, in a home of its own."""

import re
from pathlib import Path

import pytest
from page import run

ROOT = Path(__file__).parents[2]
COMMANDS = re.compile(r"^```(\w*)\n(.*?)^```$|`(kubectl [^`\n]+)`", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`(\w+\.yaml)`:\n\n```yaml\n(.*?)```", re.DOTALL)
SHELL = ("", "sh")
MACHINE = "fairway up --detach --cpus 4 --fake-gpus 8"
"""What a page starts its cluster with, on any machine that runs this test."""

BEGINS = {
    "README.md": "",
    "docs/start/first-job.md": "",
    "docs/start/gpu-box.md": MACHINE,
    "docs/start/migrate.md": f"export KUBECONFIG=$({MACHINE})",
    "docs/start/pause-and-resume.md": "",
    "docs/start/what-did-it-cost.md": f"export KUBECONFIG=$({MACHINE})",
    "examples/README.md": f"ln -s {ROOT}/examples .",
}
"""What is true when a reader comes to the page."""
ELSEWHERE = {
    "docs/start/backup-and-upgrade.md": "test_backup_and_upgrade.py runs it",
    "docs/start/box-for-a-team.md": "tests/team/test_page.py runs it, with Unix users",
    "docs/start/choose-a-policy.md": "a simulation of minutes: test_docs.py compares its figures with a run",
    "docs/start/containers.md": "it pulls images: tests/node/test_containers.py has one of its own",
    "docs/start/from-slurm.md": "test_start.py runs it",
    "docs/start/install-on-a-cluster.md": "tests/kubernetes/test_install.py runs it on a real cluster",
    "docs/start/runbook.md": "tests/web/test_views.py: a section for each alert, and for each line of Operations",
    "docs/start/see-what-happens.md": "tests/cli/test_page.py runs it",
    "docs/start/submit-to-a-cluster.md": "tests/kubernetes/test_submit.py runs it on a real cluster",
    "docs/start/sweeps.md": "test_start.py runs it",
    "docs/start/troubleshoot-a-cluster.md": "tests/kubernetes/test_install.py runs it on a real cluster",
    "docs/start/troubleshooting.md": "test_troubleshooting.py runs it",
    "docs/start/uninstall-from-a-cluster.md": "tests/kubernetes/test_install.py runs it on a real cluster",
    "docs/start/upgrade-on-a-cluster.md": "tests/kubernetes/test_install.py runs it on a real cluster",
}
NOT_RUN = {
    "make demo": "test_commands.py runs `fairway demo`",
    "make test": "this very suite",
    "python3 -m venv ~/fairway && ~/fairway/bin/pip install .": "what is under test is installed",
    "export PATH=~/fairway/bin:$PATH": "what is under test is on the path",
}
"""Without their comments."""


def commands(page: str) -> list[str]:
    """The lines of shell blocks, and kubectl lines in the text, in their order and without their comments."""
    found = COMMANDS.findall((ROOT / page).read_text())
    texts = [inline or block for language, block, inline in found if inline or language in SHELL]
    return [re.sub(r"  +#.*", "", line) for text in texts for line in text.splitlines()]


def test_every_page_for_newcomers_is_run() -> None:
    pages = [ROOT / "README.md", ROOT / "examples" / "README.md", *(ROOT / "docs" / "start").glob("*.md")]
    assert {str(page.relative_to(ROOT)) for page in pages} == {*BEGINS, *ELSEWHERE}


def test_what_is_not_run_is_there() -> None:
    assert {line for page in BEGINS for line in commands(page)} >= {*NOT_RUN}


@pytest.mark.kubectl
@pytest.mark.parametrize("page", BEGINS)
def test_the_commands_of_a_page_run_as_they_are_written(page: str, tmp_path: Path) -> None:
    for name, content in FILE.findall((ROOT / page).read_text()):
        (tmp_path / name).write_text(content)
    script = "\n".join([BEGINS[page], *(line for line in commands(page) if line not in NOT_RUN)])
    try:
        assert run(re.sub(r"fairway up --detach(?! --cpus)", MACHINE, script), tmp_path)
    finally:
        run("fairway down || true", tmp_path)


@pytest.mark.kubectl
def test_the_page_about_a_gpu_box_is_true_of_who_is_protected_and_until_when(tmp_path: Path) -> None:
    page = "docs/start/gpu-box.md"
    for name, content in FILE.findall((ROOT / page).read_text()):
        (tmp_path / name).write_text(content)
    for name in ("train.py", "sweep.py", "demo.py"):
        (tmp_path / name).write_text("import time; time.sleep(600)")
    asks = "until fairway why $(fairway ls --state waiting -o name) | grep minRuntime; do sleep 0.1; done"
    try:
        said = run("\n".join([BEGINS[page], *commands(page), f"timeout 100 bash -c '{asks}'"]), tmp_path)
        assert re.search(r"; 1 is missing; minRuntime protects sweep-\w+ until [\d:]{8}, in \d+m\n", said)
    finally:
        run("fairway down || true", tmp_path)
