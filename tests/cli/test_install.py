"""What `fairway install` prints: the kustomize base, changed by its options alone."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from fairway.cli.main import cli

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of whoever runs the tests is not asked."""
    monkeypatch.setenv("KUBECONFIG", "/dev/null")


def printed(*options: str) -> list[dict]:
    said = CliRunner().invoke(cli, ["install", *options])
    assert said.exit_code == 0, said.output
    return list(yaml.safe_load_all(said.stdout))


def refused(*options: str) -> str:
    said = CliRunner().invoke(cli, ["install", *options], standalone_mode=False)
    assert said.exception is not None
    return str(said.exception)


def of_kind(things: list[dict], kind: str) -> list[dict]:
    return [one for one in things if one["kind"] == kind]


def base() -> list[dict]:
    files = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]
    return [one for name in files for one in yaml.safe_load_all((DEPLOY / name).read_text())]


def test_it_prints_the_base_in_its_order() -> None:
    things = printed()
    assert things == base()
    first = [one["kind"] for one in things]
    assert first.index("Namespace") < first.index("ServiceAccount") < first.index("Deployment")


@pytest.mark.parametrize("folder", [DEPLOY, DEPLOY / "monitoring", DEPLOY / "dashboard"])
def test_every_file_of_a_base_is_listed(folder: Path) -> None:
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in folder.glob("*.yaml") if path.name != "kustomization.yaml")


def test_the_page_has_no_right_to_write() -> None:
    added = [one for one in printed("--dashboard") if one not in base()]
    rules = [rule for one in added for rule in one.get("rules", ())]
    assert "Deployment" in [one["kind"] for one in added]
    assert {verb for rule in rules for verb in rule["verbs"]} == {"list", "watch"}


def test_every_alert_is_on_the_page() -> None:
    (rules,) = of_kind(printed("--monitoring"), "PrometheusRule")
    page = (DEPLOY.parent / "docs" / "start" / "install-on-a-cluster.md").read_text()
    assert [it["alert"] for it in rules["spec"]["groups"][0]["rules"] if f"| `{it['alert']}` |" not in page] == []


@pytest.mark.kubectl
def test_kustomize_builds_the_same_objects() -> None:
    built = subprocess.run(["kubectl", "kustomize", str(DEPLOY)], capture_output=True, text=True, check=True).stdout
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(built)}
    assert by_name == {(one["kind"], one["metadata"]["name"]): one for one in base()}


def test_another_namespace_stands_wherever_the_first_stood() -> None:
    text = CliRunner().invoke(cli, ["install", "-n", "scheduling"]).stdout
    assert "fairway-system" not in text
    (settings,) = of_kind(list(yaml.safe_load_all(text)), "ConfigMap")
    assert yaml.safe_load(settings["data"]["settings.yaml"])["namespace"] == "scheduling"


def test_the_image_and_the_settings_are_those_that_were_given(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("policy: easy\n")
    things = printed("--image", "registry.example.com/fairway:2", "--config", str(file))
    (deployment,) = of_kind(things, "Deployment")
    (settings,) = of_kind(things, "ConfigMap")
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/fairway:2"
    assert yaml.safe_load(settings["data"]["settings.yaml"]) == {
        "policy": "easy",
        "metricsPort": 8080,
        "namespace": "fairway-system",
    }


def test_other_settings_change_the_pods_so_that_they_are_rolled(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("policy: easy\n")
    one, other = (of_kind(printed(*options), "Deployment")[0] for options in ((), ("--config", str(file))))
    assert one["spec"]["template"] != other["spec"]["template"]


def test_a_controller_outside_has_its_rights_and_nothing_runs_inside() -> None:
    kinds = {one["kind"] for one in printed("--webhook-url", "https://fairway.example.com:9443")}
    assert kinds >= {"CustomResourceDefinition", "Namespace", "ServiceAccount", "ClusterRole", "Role"}
    assert not kinds & {"Deployment", "PodDisruptionBudget", "Service", "ConfigMap"}


def test_what_cannot_be_is_refused_with_the_option_and_what_is_allowed(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("metricsPort: 1\n")
    assert "found 'Bad_Name'" in refused("-n", "Bad_Name")
    assert "https://HOST:PORT is allowed" in refused("--webhook-url", "http://here")
    assert "metricsPort: is set by `fairway install`" in refused("--config", str(file))


def test_the_controller_runs_under_restricted_pod_security() -> None:
    (deployment,) = of_kind(base(), "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {"livenessProbe", "readinessProbe", "resources"} <= container.keys()
    assert deployment["spec"]["replicas"] == 2


def test_the_image_is_built_from_files_that_are_sent_to_its_builder(tmp_path: Path) -> None:
    """A link that leads out of what the Dockerfile copies ends the build."""
    root = DEPLOY.resolve().parents[2]
    sent = [line[1:] for line in (root / ".dockerignore").read_text().split() if line.startswith("!")]
    lines = [line.split()[1:] for line in (root / "Dockerfile").read_text().splitlines() if line.startswith("COPY ")]
    copied = {source: target for *sources, target in lines for source in sources if "--from=" not in sources[0]}
    assert sorted(copied) == sorted(sent)
    for source, target in copied.items():
        is_folder = (root / source).is_dir()
        place = tmp_path / target / ("" if is_folder else Path(source).name)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(root / source, place, symlinks=True) if is_folder else shutil.copy(root / source, place)
    assert not [path for path in tmp_path.rglob("*") if not path.exists()]
    assert (tmp_path / "src/fairway/web/runbook.md").read_text() == (root / "docs/start/runbook.md").read_text()
