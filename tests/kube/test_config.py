"""Kubeconfig files and the credentials they give."""

import base64
import json
import sys
from pathlib import Path

import pytest
import yaml

from fairway.clock import Clock, VirtualClock
from fairway.kube.config import Config, ConfigError, Credentials, Exec, files, in_cluster, load


def kubeconfig(path: Path, name: str, **user: object) -> Path:
    content = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443/", "certificate-authority": "ca.pem"}}],
        "users": [{"name": name, "user": user}],
    }
    path.write_text(yaml.safe_dump(content))
    (path.parent / "ca.pem").write_text("CA")
    return path


def test_paths_in_a_kubeconfig_are_relative_to_it(tmp_path: Path) -> None:
    found = load([kubeconfig(tmp_path / "config", "one", token="t")])
    assert (found.server, found.authority, found.token, found.namespace) == ("https://one:6443", b"CA", "t", "of-one")


def test_of_several_files_the_first_current_context_counts_and_all_contexts_can_be_chosen(tmp_path: Path) -> None:
    paths = [tmp_path / "missing", kubeconfig(tmp_path / "a", "one"), kubeconfig(tmp_path / "b", "two")]
    assert load(paths).server == "https://one:6443"
    assert load(paths, "two").server == "https://two:6443"


def test_certificates_may_stand_in_the_file(tmp_path: Path) -> None:
    data = {f"client-{part}-data": base64.b64encode(part.encode()).decode() for part in ("certificate", "key")}
    found = load([kubeconfig(tmp_path / "config", "one", **data)])
    assert (found.certificate, found.key) == (b"certificate", b"key")


@pytest.mark.parametrize(
    ("text", "context", "said"),
    [
        ("[]", "", "is not a kubeconfig"),
        ("a: [", "", "cannot be read"),
        ("{}", "", "no current-context"),
        ("current-context: x", "", "no context named 'x'"),
        ("current-context: x", "y", "no context named 'y'"),
    ],
)
def test_a_kubeconfig_that_is_no_use_says_why(tmp_path: Path, text: str, context: str, said: str) -> None:
    (tmp_path / "config").write_text(text)
    with pytest.raises(ConfigError, match=said):
        load([tmp_path / "config"], context)


def test_no_kubeconfig_at_all_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fairway up"):
        load([tmp_path / "none"])


def test_the_flag_goes_before_the_variable_before_the_home(tmp_path: Path) -> None:
    environ = {"KUBECONFIG": "/a:/b", "HOME": "/home/x"}
    assert files(environ, "/c") == [Path("/c")]
    assert files(environ) == [Path("/a"), Path("/b")]
    assert files({"HOME": "/home/x"}) == [Path("/home/x/.kube/config")]


async def test_inside_a_pod_the_service_account_speaks_for_us(tmp_path: Path) -> None:
    for name, content in {"token": "first\n", "ca.crt": "CA", "namespace": "fairway-system"}.items():
        (tmp_path / name).write_text(content)
    found = in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)
    assert found and (found.server, found.namespace) == ("https://10.0.0.1:443", "fairway-system")
    assert await Credentials(found, Clock()).headers() == {"authorization": "Bearer first"}
    assert in_cluster({}, tmp_path) is None


def test_a_renewed_service_account_token_is_read_within_a_minute(tmp_path: Path) -> None:
    token, clock = tmp_path / "token", VirtualClock()
    token.write_text("first")
    credentials = Credentials(Config("https://x", token_file=str(token)), clock)

    async def story() -> list[str]:
        seen = [(await credentials.headers())["authorization"]]
        token.write_text("second")
        await clock.sleep(61)
        return [*seen, (await credentials.headers())["authorization"]]

    assert clock.run(story()) == ["Bearer first", "Bearer second"]


async def test_an_exec_plugin_is_asked_for_a_token(tmp_path: Path) -> None:
    answer = json.dumps({"status": {"token": "from-plugin", "expirationTimestamp": "2100-01-01T00:00:00Z"}})
    program = "import os; assert 'ExecCredential' in os.environ['KUBERNETES_EXEC_INFO']; print(os.environ['ANSWER'])"
    plugin = Exec((sys.executable, "-c", program), environ=(("ANSWER", answer),), folder=str(tmp_path))
    assert await Credentials(Config("https://x", plugin=plugin), Clock()).headers() == {
        "authorization": "Bearer from-plugin"
    }


async def test_an_exec_plugin_that_fails_is_named() -> None:
    credentials = Credentials(Config("https://x", plugin=Exec(("/no/such/program",))), Clock())
    with pytest.raises(ConfigError, match="/no/such/program"):
        await credentials.headers()


async def test_an_exec_plugin_that_ends_with_a_fault_is_named() -> None:
    credentials = Credentials(Config("https://x", plugin=Exec((sys.executable, "-c", "raise SystemExit(3)"))), Clock())
    with pytest.raises(ConfigError, match="exit status 3"):
        await credentials.headers()
