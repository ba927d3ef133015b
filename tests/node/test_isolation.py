"""A machine that Unix users share: what a pod of one user tries in vain against another. With real users."""

import os
import pwd
import stat
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from test_runner import SECRETS
from users import needs_users

from fairway.api.objects import ASSIGNED
from fairway.kube import kinds
from fairway.node.container import MARK
from fairway.node.execute import Order
from fairway.node.isolation.outside import strangers
from fairway.node.measure import Use
from fairway.node.names import SERVICES
from team import Team

pytestmark = needs_users

SLEEP = "sleep 1000"


async def test_a_pod_runs_as_the_user_of_its_namespace_in_the_home_and_groups_of_that_user(team: Team):
    script = 'id -u; id -g; id -G; pwd; echo "$HOME $USER $LOGNAME $SHELL"; grep -E "^Cap(Eff|Prm)" /proc/self/status'
    said = (await team.said(team.ann, "who", script)).splitlines()
    ann = team.ann
    assert said[:5] == [str(ann.pw_uid), str(ann.pw_gid), str(ann.pw_gid), ann.pw_dir,
                        f"{ann.pw_dir} {ann.pw_name} {ann.pw_name} /bin/sh"]
    assert {line.split()[1] for line in said[5:]} == {"0" * 16}


async def test_output_may_be_opened_by_name(team: Team):
    assert await team.said(team.ann, "out", "echo out > /dev/stdout; echo err > /dev/stderr") == "out\nerr\n"


async def test_nothing_runs_in_a_namespace_without_a_user(team: Team):
    await team.client.create(kinds.NAMESPACES, {"metadata": {"name": "nobodys"}})
    nobodys = pwd.struct_passwd(("nobodys", "x", 0, 0, "", "/", "/bin/sh"))
    assert "belongs to no Unix user" in await team.refused(nobodys, "a")


async def test_nothing_runs_as_root(team: Team):
    notes = {"fairway.dev/unix-user": "root", "fairway.dev/uid": "0"}
    await team.client.create(kinds.NAMESPACES, {"metadata": {"name": "root", "annotations": notes}})
    assert "no pod runs as root" in await team.refused(pwd.getpwnam("root"), "a")


async def test_a_name_that_has_another_uid_now_is_another_user(team: Team):
    notes = {"fairway.dev/unix-user": team.ann.pw_name, "fairway.dev/uid": "1"}
    await team.client.create(kinds.NAMESPACES, {"metadata": {"name": "old", "annotations": notes}})
    old = pwd.struct_passwd(("old", "x", 0, 0, "", "/", "/bin/sh"))
    assert f"now the uid is {team.ann.pw_uid}" in await team.refused(old, "a")


@pytest.mark.parametrize("asked", [{"runAsUser": 0}, {"runAsGroup": 0}, {"fsGroup": 0}, {"supplementalGroups": [0]}])
async def test_another_user_or_group_is_refused(team: Team, asked: dict[str, Any]):
    assert f"spec: securityContext.{next(iter(asked))} is 0" in await team.refused(team.ann, "a", securityContext=asked)


async def test_a_container_is_refused_another_user(team: Team):
    said = await team.refused(team.ann, "b", container={"securityContext": {"runAsUser": 0}})
    assert said.startswith("container main: securityContext.runAsUser is 0")


async def test_ones_own_user_may_be_asked_for(team: Team):
    own = {"runAsUser": team.ann.pw_uid, "runAsGroup": team.ann.pw_gid}
    assert await team.said(team.ann, "own", "id -u", securityContext=own) == f"{team.ann.pw_uid}\n"


async def test_what_a_user_tries_against_another_is_in_vain(team: Team):
    """The list of tries: each line of bob's log would be one that succeeded."""
    meta = {"name": "key", "namespace": team.ann.pw_name}
    await team.client.create(SECRETS, {"metadata": meta, "stringData": {"k": "hidden"}})
    mounts = [{"name": "key", "mountPath": "/fairway-secret"}, {"name": "scratch", "mountPath": "/fairway-scratch"}]
    env = [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "key", "key": "k"}}}]
    shared = f"fairway-{os.getpid()}"  # in /dev/shm, as programs make what they share among their processes
    copies = f"(umask 077; cp /fairway-scratch/copy /dev/shm/{shared}); cp /fairway-scratch/copy ~/private"
    cores = Path(team.ann.pw_dir).parent / "cores"
    cores.mkdir()
    cores.chmod(0o777)
    crash = f"cd {cores}; ulimit -c unlimited; (umask 0; sh -c 'kill -SEGV $$$$')"
    listen = f"(umask 077; exec python3 -c '{LISTEN}' /dev/shm/{shared}.socket) &"
    script = f"{listen} {crash}; cat /fairway-secret/k > /fairway-scratch/copy; {copies}; echo done; {SLEEP}"
    pod = await team.run(
        team.ann, "victim", script,
        container={"volumeMounts": mounts, "env": env, "resources": {"limits": {"cpu": "1"}}},
        volumes=[{"name": "key", "secret": {"secretName": "key"}}, {"name": "scratch", "emptyDir": {}}],
    )  # fmt: skip
    while not (Path(team.ann.pw_dir) / "private").exists() or not Path(f"/dev/shm/{shared}.socket").exists():
        await team.client.clock.sleep(0.02)
    process = team.process(pod)
    cgroups = cgroups_of(process.pid)
    shim, own, folder = process.ppid(), os.getpid(), team.box.attempt(pod)
    volumes = folder.parents[2] / "volumes"
    assert (volumes / "key" / "k").read_text() == "hidden"
    assert b"hidden" in Path(f"/proc/{process.pid}/environ").read_bytes()
    tries = {
        "a file of the home": f"cat {team.ann.pw_dir}/private",
        "the list of the home": f"ls {team.ann.pw_dir}",
        "the log": f"cat {folder}/log.*",
        "what the shim was told": f"cat {folder}/spec",
        "the folder of all pods": f"ls {team.box.folder}",
        "a secret volume on disk": f"cat {volumes}/key/k",
        "a secret volume where it is mounted": f"cat /fairway-secret/k /proc/{process.pid}/root/fairway-secret/k",
        "shared memory": f"cat /dev/shm/{shared}",
        "the name of shared memory": f"rm /dev/shm/{shared} || mv /dev/shm/{shared} /dev/shm/{shared}-thief",
        "an emptyDir": f"cat {volumes}/scratch/copy /proc/{process.pid}/root/fairway-scratch/copy",
        "the environment": f"cat /proc/{process.pid}/environ",
        "memory": f"dd if=/proc/{process.pid}/mem bs=1 count=1",
        "open files": f"ls /proc/{process.pid}/fd",
        "the files of the shim": f"ls /proc/{shim}/fd",
        "the sockets of Fairway": f"ls /proc/{own}/fd",
        "a signal to the program": f"kill -0 {process.pid}",
        "a signal to the shim": f"kill -0 {shim}",
        "a signal to Fairway": f"kill -0 {own}",
        "the mount namespace": f"nsenter -t {process.pid} -m true",
        "what asks for a stop": f"echo 0 x > {folder}/stop",
        "a core dump": f"cat {cores}/core*",
        "a socket": f"python3 -c '{CONNECT}' /dev/shm/{shared}.socket",
        "a debugger": f"python3 -c '{ATTACH}' {process.pid}",
        "an open file, by its number": f"python3 -c '{TAKE}' {process.pid}",
        "its limits": f"prlimit --pid {process.pid} --nofile=9:9",
        "its priority": f"renice -n 19 -p {process.pid} || ionice -c 3 -p {process.pid} || taskset -p 1 {process.pid}",
        "its place among those that die first": f"echo 1000 > /proc/{process.pid}/oom_score_adj",
        "the root and the folder of the program": f"ls /proc/{process.pid}/root/ || ls /proc/{process.pid}/cwd/",
        "the root of the first process": "ls /proc/1/root/ || ls /proc/1/cwd/",
        "the root of Fairway and of the shim": f"ls /proc/{own}/root/ || ls /proc/{own}/cwd/ || ls /proc/{shim}/cwd/",
        "its cgroup": f"for each in {cgroups}; do echo 0 > $each/cgroup.procs && exit; done; false",
        "the limits of its cgroup": f"for each in {cgroups}; do for file in $each/*; do "
                                    "case $file in */cgroup.event_control) ;; *) [ -w $file ] && exit;; esac; "
                                    "done; done; false",
    }
    attempts = "\n".join(f"if ({command}) > /dev/null 2>&1; then echo '{what}'; fi" for what, command in tries.items())
    assert await team.said(team.bob, "thief", attempts) == ""
    assert await team.said(team.ann, "self", f"cat ~/private; kill -0 {process.pid} && echo may") == "hiddenmay\n"
    end = f"cat /dev/shm/{shared}; rm /dev/shm/{shared} /dev/shm/{shared}.socket {cores}/core*"
    assert await team.said(team.ann, "end", end) == "hidden"
    cores.rmdir()


def cgroups_of(pid: int) -> str:
    """The folders of a process's cgroups, but those in which all processes of the machine are."""
    found = [line.split(":", 2)[1:] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    return " ".join(f"/sys/fs/cgroup/{names}{path}" for names, path in found if len(path) > 1)


LISTEN = ("import socket, sys, time; it = socket.socket(socket.AF_UNIX); "
          "it.bind(sys.argv[1]); it.listen(); time.sleep(1000)")
CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
ATTACH = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(16, int(sys.argv[1]), 0, 0) != 0)"
TAKE = ("import ctypes, os, sys; it = os.pidfd_open(int(sys.argv[1])); "
        "sys.exit(ctypes.CDLL(None).syscall(438, it, 1, 0) < 0)")  # pidfd_getfd


async def test_fairway_listens_on_no_abstract_socket_which_any_user_could_reach(team: Team):
    pod = await team.run(team.ann, "listens", f"echo done; {SLEEP}")
    await team.container(team.ann, "listens", "running")
    process = team.process(pod)
    numbers = set[str]()
    for pid in (os.getpid(), process.ppid(), process.pid):
        names = (os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink())
        numbers |= {name[len("socket:[") : -1] for name in names if name.startswith("socket:[")}
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    assert [each[7] for each in sockets if each[6] in numbers and each[7:] and each[7][0] == "@"] == []


@pytest.mark.parametrize("sort", ["", "DirectoryOrCreate", "FileOrCreate"])
async def test_a_host_path_is_opened_and_made_with_the_rights_of_the_user(team: Team, sort: str, tmp_path: Path):
    place = Path(team.ann.pw_dir) / f"new-{sort}" if sort else Path(team.ann.pw_dir)
    volumes = [{"name": "v", "hostPath": {"path": str(place / "sub") if not sort else str(place), "type": sort}}]
    mounted = {"container": {"volumeMounts": [{"name": "v", "mountPath": "/fairway-host"}]}, "volumes": volumes}
    said = await team.refused(team.bob, "a", **mounted)
    assert f"cannot be used by user {team.bob.pw_uid}: Permission denied" in said and not (place.exists() and sort)
    if sort:
        assert await team.said(team.ann, "b", "test -e /fairway-host && echo there", **mounted) == "there\n"
        assert place.stat().st_uid == team.ann.pw_uid


@pytest.mark.parametrize("sort, rest", [("DirectoryOrCreate", "/new"), ("FileOrCreate", "/new"), ("", ""), ("", "/in")])
async def test_a_host_path_follows_no_link_of_the_process_of_another_user(team: Team, sort: str, rest: str):
    place = Path(team.ann.pw_dir) / "open"
    (place / "in").mkdir(parents=True, exist_ok=True)
    place.chmod(0o777)
    with subprocess.Popen(["sleep", "1000"], cwd=place, user=team.ann.pw_uid) as process:
        volumes = [{"name": "v", "hostPath": {"path": f"/proc/{process.pid}/cwd{rest}", "type": sort}}]
        mounted = {"container": {"volumeMounts": [{"name": "v", "mountPath": "/fairway-host"}]}, "volumes": volumes}
        said = await team.refused(team.bob, "a", **mounted)
        process.kill()
    assert f"cannot be used by user {team.bob.pw_uid}: Permission denied" in said
    assert [each.name for each in place.iterdir()] == ["in"]


async def test_a_pipe_is_no_file_to_mount_and_holds_nothing_up(team: Team):
    pipe = Path(team.ann.pw_dir) / "pipe"
    os.mkfifo(pipe)
    os.chown(pipe, team.ann.pw_uid, team.ann.pw_gid)
    volumes = [{"name": "v", "hostPath": {"path": str(pipe), "type": "FileOrCreate"}}]
    mounted = {"container": {"volumeMounts": [{"name": "v", "mountPath": "/fairway-host"}]}, "volumes": volumes}
    assert await team.refused(team.ann, "a", **mounted) == f"hostPath {pipe}: there is no such file"


async def test_a_link_in_a_volume_leads_no_further_than_the_user_may_go(team: Team, tmp_path: Path):
    (tmp_path / "roots").mkdir(mode=0o755)
    (tmp_path / "roots" / "file").write_text("roots")
    link = {"name": "plant", "image": "none", "command": ["ln", "-s", str(tmp_path / "roots"), "/fairway-v/link"],
            "volumeMounts": [{"name": "v", "mountPath": "/fairway-v"}]}
    mounted = {"volumeMounts": [{"name": "v", "mountPath": "/fairway-w", "subPath": "link"}]}
    volumes = [{"name": "v", "emptyDir": {}}]
    said = await team.refused(team.bob, "a", container=mounted, initContainers=[link], volumes=volumes)
    assert said == f"subPath link cannot be used by user {team.bob.pw_uid}: Permission denied"


async def test_a_mount_point_is_made_with_the_rights_of_the_user_else_in_a_private_mirror(team: Team, tmp_path: Path):
    target = tmp_path / "closed" / "point"
    target.parent.mkdir(mode=0o700)
    (target.parent / "secret").write_text("roots")
    mounts = [{"name": "v", "mountPath": str(target)}, {"name": "v", "mountPath": "/fairway-point"}]
    script = f"touch /fairway-point/x && echo mounted; (ls {target.parent}/; cat {target.parent}/secret) 2> /dev/null"
    volumes = [{"name": "v", "emptyDir": {}}]
    said = await team.said(team.bob, "a", f"{script}; touch /fairway-new 2> /dev/null",
                           container={"volumeMounts": mounts}, volumes=volumes)  # fmt: skip
    assert said == "mounted\n"
    assert not target.exists() and not os.path.exists("/fairway-point") and not os.path.exists("/fairway-new")


def mounted_at(**places: str) -> dict[str, Any]:
    """A hostPath for each target: the names are those of volumes, the values `source:target`."""
    volumes = [{"name": name, "hostPath": {"path": said.split(":")[0]}} for name, said in places.items()]
    mounts = [{"name": name, "mountPath": said.split(":")[1]} for name, said in places.items()]
    return {"volumes": volumes, "container": {"volumeMounts": mounts}}


async def test_what_a_user_mounts_at_proc_does_not_lead_the_next_mount_elsewhere(team: Team):
    (Path(team.ann.pw_dir) / "open").mkdir(exist_ok=True)  # closed by her home alone
    (Path(team.ann.pw_dir) / "open" / "file").write_text("hers")
    fake = f"{team.bob.pw_dir}/proc"
    plant = f'mkdir -p {fake}/self/fd; for n in $(seq 64); do ln -s {team.ann.pw_dir}/open {fake}/self/fd/$n; done'
    await team.said(team.bob, "plant", plant)
    mounted = mounted_at(proc=f"{fake}:/proc", own=f"{team.bob.pw_dir}:/srv")
    assert await team.said(team.bob, "thief", "test -d /srv/proc && cat /srv/file 2> /dev/null", **mounted) == ""
    assert (await team.container(team.bob, "thief", "terminated"))["exitCode"] == 1  # of cat: /srv is his own


async def test_what_is_mounted_on_a_mirror_is_not_written_to_as_root(team: Team):
    closed, tricked = Path(team.bob.pw_dir).parent / "roots", f"{team.bob.pw_dir}/tricked"
    closed.mkdir(mode=0o755)
    await team.said(team.bob, "plant", f"mkdir {tricked}; ln -s {tricked} {tricked}/again; chmod 555 {tricked}")
    mounted = mounted_at(a=f"{team.bob.pw_dir}:{tricked}/a", b=f"{closed}:{tricked}/again",
                         c=f"{team.bob.pw_dir}:{tricked}/new")  # fmt: skip
    assert await team.said(team.bob, "b", f"ls {tricked}", **mounted) == "new\n"
    assert list(closed.iterdir()) == []


async def test_a_program_with_mounts_gains_no_rights_by_what_it_executes(team: Team):
    script = "grep NoNewPrivs /proc/self/status"
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/fairway-point"}]}
    bound = await team.said(team.bob, "a", script, container=mounts, volumes=[{"name": "v", "emptyDir": {}}])
    asked = await team.said(team.bob, "b", script, container={"securityContext": {"allowPrivilegeEscalation": False}})
    free = await team.said(team.bob, "c", script)
    assert [it.split()[1] for it in (bound, asked, free)] == ["1", "1", "0"]


@pytest.mark.parametrize("is_terminal", [False, True])
async def test_a_command_beside_a_container_is_its_user_too(team: Team, is_terminal: bool):
    mounts = {"volumeMounts": [{"name": "v", "mountPath": "/fairway-point"}]}
    await team.run(team.ann, "a", SLEEP, container=mounts, volumes=[{"name": "v", "emptyDir": {}}])
    await team.container(team.ann, "a", "running")
    script = "id -u; id -G; grep NoNewPrivs /proc/self/status; touch /fairway-point/x; echo end > /dev/stdout"
    order = Order(["sh", "-c", script], is_terminal=is_terminal)
    execution = team.box.runner.execute(team.ann.pw_name, "a", "main", order)
    assert execution is not None
    said = b"".join([text async for _, text in execution.output()]).decode().split()
    assert said == [str(team.ann.pw_uid), str(team.ann.pw_gid), "NoNewPrivs:", "1", "end"] and execution.code == 0


async def test_a_command_enters_what_its_user_unshared_as_that_user(team: Team):
    """As root it could be taken over there by whoever made the namespace."""
    volume = {"name": "v", "hostPath": {"path": team.ann.pw_dir}}
    mounts = {"volumeMounts": [{"name": "v", "mountPath": f"{team.ann.pw_dir}/point"}]}
    script = "exec unshare -Urm sleep 1000"
    pod = await team.run(team.ann, "a", script, container=mounts, volumes=[volume])
    await team.container(team.ann, "a", "running")
    process = team.process(pod)
    while process.name() != "sleep":
        await team.client.clock.sleep(0.02)
    order = Order(["sh", "-c", "cat /proc/self/uid_map; readlink /proc/self/ns/user"])
    execution = team.box.runner.execute(team.ann.pw_name, "a", "main", order)
    assert execution is not None
    said = b"".join([text async for _, text in execution.output()]).decode().split()
    assert said == ["0", str(team.ann.pw_uid), "1", os.readlink(f"/proc/{process.pid}/ns/user")]


@pytest.mark.parametrize("assigned", ["", "0", "1", "0,1"])
async def test_only_assigned_devices_are_in_dev_and_can_be_opened(team: Team, gpus: dict[int, str], assigned: str):
    script = "; ".join(f"ls {file} && head -c1 {file} | od -An -tx1" for file in gpus.values())
    said = await team.said(team.ann, f"gpus{assigned.replace(',', '')}", f"({script}) 2> /dev/null",
                           annotations={ASSIGNED: assigned})  # fmt: skip
    given = [gpus[int(index)] for index in filter(None, assigned.split(","))]
    assert said.split() == [word for file in given for word in (file, "00")]


async def test_whoever_copies_the_mark_of_a_container_is_a_stranger_on_its_gpus(team: Team):
    """From a login, or from another pod: only what sees the container's own mounts is beside it."""
    pod = await team.run(team.ann, "a", SLEEP, annotations={ASSIGNED: "1"})
    await team.container(team.ann, "a", "running")
    place, folder = str(team.box.attempt(pod)), team.box.folder
    pids = [detached(team.ann, mark) for mark in (place, f"{folder}/../../tmp", str(folder))]
    try:
        seen = [Use(index, 90, 0, 0, (pid,)) for index, pid in enumerate(pids)]
        said = {index: f"{team.ann.pw_name}, pid {pid}" for index, pid in enumerate(pids)}
        assert strangers([*seen, Use(3, 90, 0, 0, (team.process(pod).pid,))], folder) == said
    finally:
        for pid in pids:
            os.kill(pid, 9)


def detached(user: pwd.struct_passwd, mark: str) -> int:
    """A process that is below no other, with this mark."""
    script = ["sh", "-c", "sleep 1000 > /dev/null & echo $!"]
    pid = int(subprocess.run(script, env={MARK: mark}, user=user.pw_uid, stdout=subprocess.PIPE, check=True).stdout)
    while psutil.Process(pid).ppid() == os.getpid():
        os.sched_yield()
    return pid


async def test_the_rest_of_dev_is_as_it_was(team: Team):
    terminal = "python3 -c 'import os; os.openpty()' && echo pty"
    script = f"ls /dev; echo x > /dev/null; head -c1 /dev/urandom | wc -c; {terminal}"
    said = (await team.said(team.ann, "dev", script)).split()
    here = {name for name in os.listdir("/dev") if not name.startswith("fairway-test-")}
    assert {*said} - {"1", "pty"} == here and said[-2:] == ["1", "pty"]


async def test_a_device_that_is_not_assigned_cannot_be_opened_under_another_name(team: Team, gpus: dict[int, str]):
    if "devices" not in team.box.runner.limits.places:
        pytest.skip("no cgroups of devices of version 1 here")
    other = Path(team.ann.pw_dir) / "other"
    os.mknod(other, stat.S_IFCHR | 0o666, os.makedev(1, 7))
    os.chmod(other, 0o666)
    script = f"head -c1 {other} > /dev/null && echo opened; true"
    assert "Operation not permitted" in await team.said(team.ann, "shut", script, annotations={ASSIGNED: "0"})
    assert await team.said(team.ann, "open", script, annotations={ASSIGNED: "1"}) == "opened\n"


@pytest.fixture
def nodev(team: Team) -> Iterator[Path]:
    """A file system on which no device may be opened, as FUSE mounts of users are, with a device on it (/dev/null)."""
    place = Path(team.ann.pw_dir) / "nodev"
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nodev,noexec,nosuid,mode=755", "tmpfs", place], check=True)
    os.mknod(place / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    os.chmod(place / "null", 0o666)
    yield place
    subprocess.run(["umount", "-l", place], check=True)


async def test_a_volume_opens_no_device_that_its_file_system_closes(team: Team, nodev: Path):
    mounts = [{"name": "v", "mountPath": f"/fairway-{it}", "readOnly": it == "ro"} for it in ("rw", "ro")]
    script = "for it in rw ro; do cat /fairway-$it/null && echo opened; findmnt -no OPTIONS /fairway-$it; done 2>&1"
    said = await team.said(team.ann, "a", script, container={"volumeMounts": mounts},
                           volumes=[{"name": "v", "hostPath": {"path": str(nodev)}}])  # fmt: skip
    assert said.count("Permission denied") == said.count(",nosuid,nodev,noexec,") == 2 and "\nro," in said, said


async def test_a_covered_folder_opens_no_device_that_its_file_system_closes(team: Team, nodev: Path):
    said = await team.said(team.ann, "a", f"ls {nodev}; cat {nodev}/null 2>&1 && echo opened",
                           container={"volumeMounts": [{"name": "v", "mountPath": f"{nodev}/point"}]},
                           volumes=[{"name": "v", "emptyDir": {}}])  # fmt: skip
    assert said.startswith("null\npoint\n") and said.endswith("Permission denied\n"), said


async def test_a_covered_folder_is_as_closed_by_its_access_list(team: Team):
    closed = Path(team.ann.pw_dir).parent / "closed"
    closed.mkdir(mode=0o700)
    (closed / "secret").write_text("hidden")
    os.chown(closed, 0, team.bob.pw_gid)
    entries = ((1, 7, -1), (2, 5, team.ann.pw_uid), (4, 0, -1), (0x10, 5, -1), (0x20, 0, -1))  # tag, rights, id
    entry = b"".join(struct.pack("<HHi", *each) for each in entries)
    try:
        os.setxattr(closed, "system.posix_acl_access", struct.pack("<I", 2) + entry)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    mounted = {"container": {"volumeMounts": [{"name": "v", "mountPath": f"{closed}/point"}]},
               "volumes": [{"name": "v", "emptyDir": {}}]}
    assert await team.said(team.bob, "a", f"cat {closed}/secret 2> /dev/null", **mounted) == ""
    assert await team.said(team.ann, "b", f"cat {closed}/secret", **mounted) == "hidden"


async def test_a_command_beside_a_container_sees_its_devices_alone(team: Team, gpus: dict[int, str]):
    await team.run(team.ann, "a", SLEEP, annotations={ASSIGNED: "1"})
    await team.container(team.ann, "a", "running")
    order = Order(["sh", "-c", "ls /dev | grep fairway-test"], is_terminal=True)
    execution = team.box.runner.execute(team.ann.pw_name, "a", "main", order)
    assert execution is not None
    said = b"".join([text async for _, text in execution.output()]).decode().split()
    assert [f"/dev/{name}" for name in said if str(os.getpid()) in name] == [gpus[1]]


async def test_a_pod_finds_the_services_of_its_user_by_name_and_no_others(team: Team):
    for user in (team.ann, team.bob):
        service = {"metadata": {"name": "web", "namespace": user.pw_name}, "spec": {"ports": [{"port": 80}]}}
        await team.client.create(SERVICES, service)
    while len(team.box.runner.names.informer.store) < 2:
        await team.client.clock.sleep(0.02)
    said = await team.said(team.ann, "names", "cat /etc/hosts; grep NoNewPrivs /proc/self/status")
    assert f"web.{team.ann.pw_name}.svc" in said and team.bob.pw_name not in said and said.endswith("NoNewPrivs:\t1\n")
