"""What a command is called here that Slurm, Kubernetes, SkyPilot and shells call otherwise."""

from collections.abc import Iterable
from difflib import get_close_matches

WORDS = {
    "ls": "squeue sq sjobs list ps jobs queue qstat bjobs",
    "ls --all": "sacct history",
    "submit -- PROGRAM": "sbatch run launch qsub bsub nohup add create start",
    "submit --follow -- PROGRAM": "srun",
    "submit -f FILE": "apply",
    "shell": "salloc ssh attach terminal bash",
    "cancel JOB": "scancel kill delete rm qdel bkill remove abort",
    "cancel JOB`, or of the cluster `fairway down": "stop",
    "logs JOB": "log tail output cat",
    "status JOB": "show describe get info scontrol job",
    "why JOB": "explain pending reason",
    "suspend JOB": "hold",
    "resume JOB": "release unpause continue",
    "modify JOB": "update set edit",
    "nodes": "sinfo node hosts gpus gpu",
    "queues": "sshare quota quotas sprio squota",
    "usage": "sreport cost",
    "dashboard": "ui web page",
    "up": "init serve server",
    "--help": "help",
    "--version": "version",
}
"""What is typed here → what is typed elsewhere."""


def meant(word: str, commands: Iterable[str]) -> str:
    """What to type instead, as a clause."""
    here = next((line for line, others in WORDS.items() if word in others.split()), "")
    near = get_close_matches(word, commands, n=1)
    if here:
        return f"here it is `fairway {here}`"
    return f"did you mean `fairway {near[0]}`?" if near else "`fairway --help` lists those that there are"
