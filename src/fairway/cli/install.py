"""`fairway install`: what a cluster needs, printed for `kubectl apply -f -`.

The manifests are the files of `fairway/deploy`, a kustomize base; nothing is made here but what an option changes. The
namespace is replaced wherever its name stands. With `--webhook-url` the controller runs outside: what runs it inside is
left out, and the API server reaches its webhook at that address.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import click
import yaml

from fairway import NAMESPACE
from fairway.kube.manifest import load

from . import systemd as unit
from .connect import ask
from .installed import check as look
from .installed import elsewhere
from .main import Command, Problem
from .manifests import Thing, manifests
from .up import read_settings

INSIDE = ("Deployment", "PodDisruptionBudget", "Service", "ConfigMap")
"""What runs the controller in the cluster."""


def _namespace(context: click.Context, option: click.Parameter, name: str) -> str:
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise click.BadParameter(f"found {name!r}; lower-case letters, digits and - are allowed")
    return name


def _url(context: click.Context, option: click.Parameter, text: str) -> str:
    parts = urlsplit(text)
    if text and (parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment):
        raise click.BadParameter(f"found {text!r}; https://HOST:PORT is allowed")
    return text.rstrip("/")


namespace_option = click.option(
    "-n", "--namespace", default=NAMESPACE, show_default=True, metavar="NAME", callback=_namespace,
    help="The namespace of the controller.",
)  # fmt: skip


@click.command(cls=Command)
@namespace_option
@click.option("--image", default="", metavar="IMAGE", help="The controller's image; default: fairway and its version.")
@click.option("--config", default="", metavar="FILE", help="A YAML file of settings for the controller.")
@click.option("--webhook-url", default="", metavar="URL", callback=_url,
              help="The controller runs outside the cluster; its webhook is at https://HOST:PORT.")
@click.option("--monitoring", is_flag=True, help="With ServiceMonitor, alert rules and a Grafana dashboard.")
@click.option("--dashboard", is_flag=True, help="With a live page, for viewers with tokens of the cluster.")
@click.option("--systemd", is_flag=True, help="Print the unit of a team's machine, `fairway up --team`, instead.")
@click.option("--check", is_flag=True, help="Say what is lacking instead, a line each; exit 1 if anything.")
@click.option("--kubeconfig", default="", metavar="FILE", help="The kubeconfig of the cluster.")
@click.option("--context", default="", metavar="NAME", help="The context of the kubeconfig.")
def install(systemd: bool, check: bool, kubeconfig: str, context: str, **said: Any) -> int:
    """Print the manifests that a cluster needs: fairway install | kubectl apply -f -

    The same command with the same options upgrades: what is there is changed in place, and jobs run on. It refuses if
    the cluster of the kubeconfig answers that Fairway is in another namespace."""
    if systemd:
        return unit.check(said["config"]) if check else unit.print_unit(said["config"])
    things = list(chosen(**said))
    if check:
        return int(ask(look, kubeconfig, context, namespace=said["namespace"], things=things))
    _refuse_second(kubeconfig, context, said["namespace"])
    for one in things:
        click.echo("---\n" + yaml.dump(one, Dumper=_Dumper, sort_keys=False, allow_unicode=True), nl=False)
    return 0


def _refuse_second(kubeconfig: str, context: str, namespace: str) -> None:
    """Refuses what would take the roles of another namespace's controller. The manifests may be for a cluster that does
    not answer here."""
    other = ""
    with suppress(Problem):
        other = ask(elsewhere, kubeconfig, context, namespace=namespace)
    if other:
        todo = f"upgrade with -n {other}, or `fairway uninstall -n {other}` first"
        raise Problem(f"--namespace: found {namespace}; Fairway is installed in {other}: {todo}")


def chosen(
    namespace: str, *, image: str = "", config: str = "", webhook_url: str = "", monitoring: bool = False,
    dashboard: bool = False,
) -> Iterator[Thing]:
    """The manifests, as the options change them."""
    settings = _settings(config)
    for one in manifests(namespace):
        match one["kind"]:
            case kind if webhook_url and kind in INSIDE:
                continue
            case "Deployment":
                _run_with(one["spec"]["template"], image, settings)
            case "ConfigMap" if settings:
                own = yaml.safe_load(one["data"]["settings.yaml"])
                one["data"]["settings.yaml"] = yaml.safe_dump(settings | own)
        for hook in one.get("webhooks") or () if webhook_url else ():
            hook["clientConfig"]["url"] = webhook_url + hook["clientConfig"].pop("service")["path"]
        yield one
    for one in manifests(namespace, "dashboard") if dashboard else ():
        if one["kind"] == "Deployment":
            _run_with(one["spec"]["template"], image, {})
        yield one
    for one in manifests(namespace, "monitoring") if monitoring else ():
        if not (webhook_url and one["kind"] == "ServiceMonitor"):  # which selects a Service
            yield one


def _run_with(template: Thing, image: str, settings: Thing) -> None:
    """The pods run this image, if one is named, and are replaced when their settings change."""
    if image:
        template["spec"]["containers"][0]["image"] = image
    if settings:
        sum = hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
        template["metadata"]["annotations"] = {"fairway.dev/settings": sum[:16]}


def _settings(file: str) -> dict[str, Any]:
    """What a file of settings says; refused as the controller would refuse it."""
    read_settings(file)
    values = next(iter(load(file)), {}) if file else {}
    assert isinstance(values, dict)
    for key in ("metricsPort", "namespace") if file else ():
        if key in values:
            raise Problem(f"--config: {file}: {key}: is set by `fairway install`; leave it out")
    return values


class _Dumper(yaml.CSafeDumper):
    """Text of several lines as a block; nothing is an alias of something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent)
