"""`submit --sync`: which files go to a cluster, and that its init step puts them where the program starts."""

import base64
import os
import subprocess
from pathlib import Path

import pytest

from fairway.cli.main import Problem
from fairway.cli.sync import FILE, FOLDER, PACKED, packed, tracked, unpack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "project"
    (found / "pkg").mkdir(parents=True)
    for name, text in {"train.py": "print()", "pkg/a b.py": "x", ".gitignore": "*.bin\n", "big.bin": "0"}.items():
        (found / name).write_text(text)
    (found / "pkg" / "link").symlink_to("../train.py")
    return found


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", "-c", "init.defaultBranch=main", *words], cwd=folder, check=True, capture_output=True)


def test_outside_of_a_repository_all_goes_along_that_is_not_ignored(folder: Path) -> None:
    assert tracked(folder) == [".gitignore", "pkg/a b.py", "pkg/link", "train.py"]


def test_in_a_repository_what_git_tracks_goes_along_from_the_folder_down(folder: Path) -> None:
    git(folder, "init", "-q")
    git(folder, "add", "train.py", "pkg")
    (folder / "untracked.py").write_text("")
    (folder / "train.py").rename(folder / "moved.py")  # tracked, and not there
    assert tracked(folder) == ["pkg/a b.py", "pkg/link"]
    assert tracked(folder / "pkg") == ["a b.py", "link"]


def test_the_init_step_unpacks_what_was_packed_where_the_program_starts(folder: Path, tmp_path: Path) -> None:
    (folder / "run.sh").write_text("exit 0")
    (folder / "run.sh").chmod(0o755)
    data = packed(str(folder))
    template = {"spec": {"containers": [{"name": "main", "image": "i", "resources": {
        "requests": {"cpu": "1", "nvidia.com/gpu": "2"}}}]}}  # fmt: skip
    unpack(template, "files")
    main, (step,) = template["spec"]["containers"][0], template["spec"]["initContainers"]
    assert main["workingDir"] == FOLDER and step["image"] == "i"
    assert step["resources"] == {"requests": {"cpu": "1"}}
    there, here = tmp_path / "there", tmp_path / "files"
    there.mkdir()
    here.mkdir()
    (here / FILE).write_bytes(base64.b64decode(base64.b64encode(data[FILE])))
    command = [word.replace(PACKED, str(here)).replace(FOLDER, str(there)) for word in step["command"]]
    subprocess.run(command, check=True)
    assert (there / "pkg" / "a b.py").read_text() == "x" and os.access(there / "run.sh", os.X_OK)
    assert (there / "pkg" / "link").readlink() == Path("../train.py") and not (there / "big.bin").exists()
    assert packed(str(folder)) == data  # the same files are the same bytes


def test_too_much_is_told_with_the_largest_files_and_what_to_do(folder: Path) -> None:
    (folder / "data.raw").write_bytes(os.urandom(3 << 20))
    with pytest.raises(Problem) as refused:
        packed(str(folder))
    said = refused.value.message
    assert "5 files of " in said and "have 3.0 MiB packed, and 1 MiB goes along" in said
    assert "the largest are data.raw (3.0 MiB)" in said


def test_a_folder_that_is_not_there_or_empty_is_told(tmp_path: Path) -> None:
    with pytest.raises(Problem, match="there is no folder"):
        packed(str(tmp_path / "none"))
    with pytest.raises(Problem, match="git tracks no file"):
        packed(str(tmp_path))
