"""Containers of images, where `fairway up --containers podman` asks for them.

The shim starts the engine's client, `podman run`, in place of the program. The client hands on output, SIGTERM and exit
code; the container's own processes are below the shim, since that adopts the engine's monitor. So all that holds for
processes holds for them: they outlive Fairway, and nothing of them outlives the shim. After the client, however it
ended, the shim removes the container by its name, which is that of the attempt, and so does who finds a lost attempt.
Where the client ended with one of its own exit codes, the shim first asks the engine whether the program ever ran.

The container's variables are the client's environment, from where it copies those that it is told the names of: values
are in nobody's list of processes. Only what the client reads itself is the client's, and given to the container as an
argument. The network and the shared memory are the machine's, as for processes.
"""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairway.api.names import ON_THIS_MACHINE
from fairway.api.quantities import exact
from fairway.node.attended import is_attended, kept
from fairway.node.environment import DEFAULT_PATH, Container, Unusable, words

READ_BY_CLIENT = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|LANG|TERM|LD_\w+|XDG_\w+|DBUS_SESSION_BUS_ADDRESS|"
                            r"STORAGE_(DRIVER|OPTS)|CONTAINERS_\w+|CONTAINER_(HOST|SSHKEY|CONNECTION)|NOTIFY_SOCKET|"
                            r"REGISTRY_AUTH_FILE|GO(DEBUG|GC|MAXPROCS|TRACEBACK)|SSL_CERT_(FILE|DIR)")
PROXY = re.compile(r"(https?|no)_proxy|(HTTPS?|NO)_PROXY")
DEVICE_SPECS = ("/etc/cdi", "/var/run/cdi")
SHARED_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
LEAST_CPUS = 0.01  # the kernel gives a millisecond of each tenth of a second, or more
LABEL = "fairway.dev/attempt"
OF_MACHINE = ("--network", "host", "--ipc", "host")
OF_RUNTIME, CAME_SO_FAR = "OCI runtime error", "command that was not found"
NEEDS_IDS = ("; a user other than root needs subordinate ids: `sudo usermod --add-subuids 100000-165535 --add-subgids"
             " 100000-165535 USER`")  # fmt: skip


class EngineError(Exception):
    """The engine cannot be used: one line, why and what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """`path`: of the client. `base`: its environment. `devices`: by index, the files of the GPUs that are real."""

    path: str
    base: Mapping[str, str]
    devices: Mapping[int, str] = field(default_factory=dict)

    async def tried(self) -> None:
        """EngineError where no container can run here. The trial needs no image: its root is an empty folder, and that
        its program is not found there shows that all before was done. It is another user's, as images have some."""
        with TemporaryDirectory() as root:
            os.chmod(root, 0o755)
            words = await self._asked("run", "--rm", *OF_MACHINE, "--user", "1:1", "--rootfs", root, "/fairway")
        if CAME_SO_FAR not in words:
            name = Path(self.path).name
            ids = NEEDS_IDS * (os.geteuid() != 0 and OF_RUNTIME in words)
            found = f"{name} cannot run a container here: {words}{ids}"
            raise EngineError(f"--containers {name}: {found}; mend that, or use --containers processes")

    async def fetch(self, container: Container) -> None:
        """Has the image here, as `imagePullPolicy` says. Unusable, with the engine's words, where it cannot be had."""
        image, policy = container["image"], container.get("imagePullPolicy")
        is_local = image.startswith("localhost/")  # no registry has it
        is_here = not await self._asked("image", "exists", image)
        if is_here and (is_local or policy != "Always"):
            return
        if is_local or policy == "Never":
            raise Unusable(f"image {image!r} is not on this machine, and imagePullPolicy or its name keeps it from"
                           " being pulled: build or load it", "ErrImageNeverPull")  # fmt: skip
        if words := await self._asked("pull", "--quiet", image):
            raise Unusable(f"image {image!r} cannot be pulled: {words}", "ImagePullBackOff")

    async def _asked(self, *arguments: str) -> str:
        """What the engine says of why it fails; empty where it does not."""
        process = await asyncio.create_subprocess_exec(
            self.path, *arguments, env=dict(self.base), stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            _, said = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise
        lines = said.decode(errors="replace").split("\n")
        words = next((line for line in reversed(lines) if line.strip()), "without a word")
        return words.removeprefix("Error: ") if process.returncode else ""

    def order(self, container: Container, env: Mapping[str, str], given: str) -> dict[str, Any]:
        """What `contained` adds to the shim's orders, by what the container says. `given`: its devices."""
        user = container.get("securityContext") or {}
        options = [*_limits(container), *self._gpus(given)]
        if container.get("workingDir"):
            options += ["--workdir", container["workingDir"]]
        if "runAsUser" in user:
            options += ["--user", f"{user['runAsUser']}:{user.get('runAsGroup', 0)}"]
        if user.get("allowPrivilegeEscalation") is False:
            options += ["--security-opt", "no-new-privileges"]
        own = {key: value for key, value in self.base.items() if READ_BY_CLIENT.fullmatch(key)}
        return {"path": self.path, "image": container["image"], "options": options, "base": own,
                "inside": _words(container, env), "has_entry": bool(container.get("command"))}  # fmt: skip

    def _gpus(self, given: str) -> list[str]:
        """By CDI, where a file of this machine describes its GPUs; else their files. Inside they count from 0."""
        real = [int(it) for it in given.split(",") if it and int(it) in self.devices]
        if not real:
            return []
        if any(it.name.startswith("nvidia") for each in DEVICE_SPECS for it in Path(each).glob("*")):
            files = [f"nvidia.com/gpu={index}" for index in real]
        else:
            files = [self.devices[index] for index in real] + [it for it in SHARED_DEVICES if Path(it).exists()]
        inside = ",".join(str(index) for index in range(len(real)))
        return [*(f"--device={it}" for it in files), f"--env=CUDA_VISIBLE_DEVICES={inside}"]


def engine(name: str, base: Mapping[str, str], devices: Mapping[int, str]) -> Engine | None:
    """The engine of that name; None where there is to be none. EngineError where it is not installed."""
    if not name:
        return None
    path = shutil.which(name, path=base.get("PATH"))
    if path is None:
        raise EngineError(f"--containers {name}: {name} is not installed; install it, or use --containers processes")
    own = {key: value for key, value in base.items() if READ_BY_CLIENT.fullmatch(key) or PROXY.fullmatch(key)}
    return Engine(path, own, devices)


def is_of_image(container: Container) -> bool:
    """Whether it needs an engine: not what was submitted to run as a process of this machine."""
    return bool(container.get("image") != ON_THIS_MACHINE)


def name_of(place: Path) -> str:
    """The engine's name for the container of an attempt."""
    uid, _, container, number = place.parts[-4:]
    return f"fairway-{uid}-{container}-{number}"


def contained(spec: dict[str, Any], place: Path) -> dict[str, Any]:
    """The shim's orders for an attempt at `place`, as commands of the engine where the container is one of an image."""
    if not (said := spec.get("engine")):
        return spec
    path, name, inside = said["path"], name_of(place), list(said["inside"])
    entry = ["--entrypoint", inside.pop(0)] if said["has_entry"] else []
    mounts = [it for each in spec["mounts"] for it in _mount(*each)]
    hosts = ["--volume", f"{spec['hosts']}:/etc/hosts"] if spec["hosts"] else []
    argv = [path, "run", "--name", name, "--label", f"{LABEL}={place}", *OF_MACHINE,
            "--pull", "never", "--log-driver", "none", *mounts, *hosts, *_variables(spec["env"]),
            *said["options"], *entry, said["image"], *inside]  # fmt: skip
    return spec | {
        "argv": argv,
        "inside": said["inside"],
        "env": {key: value for key, value in spec["env"].items() if not READ_BY_CLIENT.fullmatch(key)} | said["base"],
        "mounts": [],
        "hosts": "",
        "began": [path, "container", "inspect", "--format", "{{.State.StartedAt.IsZero}}", name],
        "remove": [path, "rm", "--force", "--ignore", "--time", "0", name],
        "beside": [path, "exec", "--interactive"],
        "name": name,
    }


def message_of(file: Path, spec: dict[str, Any]) -> None:
    """Its last words have their place in the container where Kubernetes has it."""
    target = spec["message"] or DEFAULT_PATH
    spec["env"]["FAIRWAY_TERMINATION_LOG"] = target
    spec["mounts"] = [*spec["mounts"], (str(file), "", target, False, None)]


def beside(spec: Mapping[str, Any], argv: Sequence[str], *, is_terminal: bool) -> list[str]:
    """The command that runs `argv` in a container of the engine."""
    return [*spec["beside"], *(["--tty"] if is_terminal else []), spec["name"], *argv]


def _words(container: Container, env: Mapping[str, str]) -> list[str]:
    """Command and arguments; without a command the image has one, and the arguments are its."""
    if is_attended(container) and not container.get("command"):
        raise Unusable(f"container {container['name']!r} is attended and has no command: give it one")
    return kept(container, words(container, env))


def _limits(container: Container) -> list[str]:
    limits = (container.get("resources") or {}).get("limits") or {}
    cpu, memory = (exact(str(limits.get(name) or 0)) for name in ("cpu", "memory"))
    options = ["--cpus", f"{max(float(cpu), LEAST_CPUS):.3f}"] if cpu else []
    return [*options, "--memory", str(int(memory)), "--memory-swap", str(int(memory))] if memory else options


def _mount(source: str, sub: str, target: str, is_read_only: bool, sort: str | None) -> list[str]:
    """`sub` is empty: only users of a team have their volumes opened by the shim."""
    quoted = [f'"{it}"' if "," in it else it for it in (f"source={source}", f"target={target}")]
    return ["--mount", ",".join(["type=bind", *quoted, *(["readonly"] if is_read_only else [])])]


def _variables(env: Mapping[str, str]) -> list[str]:
    """By name, but for those that the client would take as its own."""
    return [f"--env={key}={value}" if READ_BY_CLIENT.fullmatch(key) else f"--env={key}" for key, value in env.items()]
