"""The page on backup and upgrade, as written: no job is interrupted, and a restore starts it again."""

from pathlib import Path

from page import blocks, run

PAGE = "start/backup-and-upgrade.md"


def test_a_job_runs_through_backup_and_upgrade_and_starts_again_after_a_restore(tmp_path: Path) -> None:
    backup, restore, upgrade = blocks(PAGE)
    upgrade = upgrade.replace("python3 -m pip install --upgrade .", "true")  # what is under test is installed already
    work = "echo start >> starts; while [ ! -e end ]; do sleep 0.1; done"
    started = "until grep -q start starts; do sleep 0.1; done"
    finished = "until fairway ls --all -o json | grep -q Succeeded; do :; done"
    try:
        run(f"fairway up --detach --cpus 1; fairway submit --name train -- sh -c '{work}'; {started}", tmp_path)
        run(backup + upgrade, tmp_path)
        assert (tmp_path / "starts").read_text() == "start\n"
        assert "train" in run(restore, tmp_path)
        run("until [ $(wc -l < starts) = 2 ]; do :; done; touch end; " + finished, tmp_path)
        assert (tmp_path / "starts").read_text() == "start\n" * 2
    finally:
        run("fairway down || true", tmp_path)
