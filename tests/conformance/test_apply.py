"""Server-side apply: fields have managers, who conflict, share and let go."""

import pytest

APPLY = "application/apply-patch+yaml"


def config(name: str = "a", **data) -> dict:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, **({"data": data} if data else {})}


def deployment(*containers: dict, **spec) -> dict:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers)}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
            "spec": {"selector": {"matchLabels": labels}, "template": template} | spec}


def side(*containers: dict) -> dict:
    """A configuration that says nothing but containers."""
    spec = {"spec": {"template": {"spec": {"containers": list(containers)}}}} if containers else {}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, **spec}


class Applier:
    def __init__(self, api, path: str) -> None:
        self.api, self.path = api, path

    async def __call__(self, manager: str, thing: dict, **query) -> dict:
        return await self.api.patch(self.path, thing, APPLY, fieldManager=manager, **query)

    async def refused(self, code: int, manager: str, thing, **query) -> dict:
        return await self.api.refused(code, "PATCH", self.path, thing, media=APPLY, fieldManager=manager, **query)


@pytest.fixture
def apply(api, maps) -> Applier:
    return Applier(api, f"{maps}/a")


@pytest.fixture
def deploy(api, namespace) -> Applier:
    return Applier(api, f"/apis/apps/v1/namespaces/{namespace}/deployments/web")


def owned(thing: dict) -> dict:
    return {each["manager"]: each["fieldsV1"] for each in thing["metadata"].get("managedFields", ())}


async def test_an_apply_makes_what_is_not_there_and_owns_what_it_says(api, apply, maps):
    answer = await api.ask("PATCH", f"{maps}/a", config(x="1"), media=APPLY, fieldManager="one")
    assert answer.status == 201
    [entry] = answer.thing["metadata"]["managedFields"]
    assert (entry["operation"], entry["apiVersion"], entry["fieldsType"]) == ("Apply", "v1", "FieldsV1")
    assert entry["fieldsV1"] == {"f:data": {"f:x": {}}} and entry["time"]
    again = await apply("one", config(x="1"))
    assert again == answer.thing


async def test_yaml_is_read(api, apply):
    made = await apply("one", b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  x: '1'\n")
    assert made["data"] == {"x": "1"}


async def test_what_others_say_alike_is_shared_and_what_they_say_otherwise_is_a_conflict(apply):
    await apply("one", config(x="1", y="2"))
    shared = await apply("two", config(x="1", z="3"))
    assert owned(shared) == {"one": {"f:data": {"f:x": {}, "f:y": {}}}, "two": {"f:data": {"f:x": {}, "f:z": {}}}}
    status = await apply.refused(409, "two", config(x="9"))
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert status["details"]["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}]
    several = await apply.refused(409, "two", config(x="9", y="8"))
    assert several["message"] == 'Apply failed with 2 conflicts: conflicts with "one":\n- .data.x\n- .data.y'


async def test_force_takes_what_it_conflicts_about(apply):
    await apply("one", config(x="1", y="2"))
    forced = await apply("two", config(x="9"), force="true")
    assert forced["data"] == {"x": "9", "y": "2"}
    assert owned(forced) == {"one": {"f:data": {"f:y": {}}}, "two": {"f:data": {"f:x": {}}}}


async def test_what_is_said_no_more_goes_unless_others_say_it(apply):
    await apply("one", config(x="1", y="2"))
    await apply("two", config(x="1"))
    left = await apply("one", config())
    assert left["data"] == {"x": "1"} and owned(left) == {"two": {"f:data": {"f:x": {}}}}


async def test_other_writes_take_what_they_change(api, apply, maps):
    await apply("one", config(x="1", y="2"))
    patched = await api.patch(f"{maps}/a", {"data": {"x": "7", "y": None, "z": "1"}}, fieldManager="hand")
    assert owned(patched)["hand"] == {"f:data": {"f:x": {}, "f:z": {}}} and "one" not in owned(patched)
    status = await apply.refused(409, "one", config(x="1"))
    assert status["message"] == 'Apply failed with 1 conflict: conflict with "hand" using v1: .data.x'


async def test_an_empty_list_takes_all_managers_away(api, apply, maps):
    await apply("one", config(x="1"))
    assert not owned(await api.patch(f"{maps}/a", {"metadata": {"managedFields": [{}]}}))


async def test_lists_are_merged_by_their_keys(deploy):
    env = [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]
    main = {"name": "main", "image": "i", "args": ["a", "b"], "env": env, "ports": [{"containerPort": 80}]}
    made = await deploy("one", deployment(main, replicas=2))
    fields = owned(made)["one"]["f:spec"]
    assert fields["f:selector"] == {} and fields["f:replicas"] == {}
    assert fields["f:template"]["f:spec"]["f:containers"] == {'k:{"name":"main"}': {
        ".": {}, "f:name": {}, "f:image": {}, "f:args": {},
        "f:env": {f'k:{{"name":"{name}"}}': {".": {}, "f:name": {}, "f:value": {}} for name in "AB"},
        "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}}}
    both = await deploy("two", side({"name": "side", "image": "s"}))
    assert [each["name"] for each in both["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    fewer = await deploy("one", deployment({"name": "main", "image": "i", "env": env[:1]}))
    first = fewer["spec"]["template"]["spec"]["containers"][0]
    assert first["env"] == env[:1] and "ports" not in first and "args" not in first
    alone = await deploy("two", side())
    assert [each["name"] for each in alone["spec"]["template"]["spec"]["containers"]] == ["main"]
    status = await deploy.refused(409, "two", side({"name": "main", "image": "other"}))
    assert status["details"]["causes"][0]["field"] == '.spec.template.spec.containers[name="main"].image'


async def test_the_status_has_managers_of_its_own(api, deploy):
    await deploy("one", deployment({"name": "main", "image": "i"}))
    thing = {**side(), "status": {"conditions": [{"type": "Z", "status": "True"}]}}
    told = await api.patch(f"{deploy.path}/status", thing, APPLY, fieldManager="two")
    [entry] = [each for each in told["metadata"]["managedFields"] if each["manager"] == "two"]
    assert entry["subresource"] == "status" and "f:conditions" in entry["fieldsV1"]["f:status"]
    assert "status" not in str(owned(told)["one"])


@pytest.mark.parametrize(("thing", "code", "text"), [
    (config() | {"metadata": {"name": "a", "managedFields": [{"manager": "x"}]}}, 400, "managedFields must be nil"),
    ({"metadata": {"name": "a"}}, 400, "invalid object type"),
    (config() | {"kind": "Secret"}, 400, "invalid object type: /v1, Kind=Secret"),
    (b"{a: [", 400, "error decoding YAML"),
    (config("b"), 400, "does not match"),
])
async def test_what_is_no_configuration_is_refused(apply, thing, code, text):
    assert text in (await apply.refused(code, "one", thing))["message"]


async def test_an_apply_names_its_manager_and_only_it_may_force(api, apply, maps):
    status = await api.refused(422, "PATCH", f"{maps}/a", config(), media=APPLY)
    assert status["details"]["causes"][0]["field"] == "fieldManager"
    await apply("one", config(x="1"))
    status = await api.refused(422, "PATCH", f"{maps}/a", {"metadata": {}}, media=api.MERGE, force="true")
    assert status["details"]["causes"][0]["field"] == "force"


async def test_an_apply_of_an_older_version_is_a_conflict(apply):
    await apply("one", config(x="1"))
    older = config(x="2")
    older["metadata"]["resourceVersion"] = "1"
    assert "has been modified" in (await apply.refused(409, "one", older))["message"]


async def test_a_manager_may_be_renamed_by_writing_the_managed_fields(api, apply, maps):
    made = await apply("one", config(x="1", y="2"))
    [entry] = made["metadata"]["managedFields"]
    change = {"metadata": {"managedFields": [entry | {"manager": "two"}]}}
    await api.patch(f"{maps}/a", change)
    left = await apply("two", config(x="1"))
    assert left["data"] == {"x": "1"} and list(owned(left)) == ["two"]


async def test_managed_fields_that_cannot_be_read_change_nothing(api, apply, maps):
    made = await apply("one", config(x="1"))
    seized = {"manager": "two", "operation": "Seize", "fieldsType": "FieldsV1", "fieldsV1": {}}
    for wrong in ([{"manager": "two"}], [seized]):
        await api.ask("PATCH", f"{maps}/a", {"metadata": {"managedFields": wrong}})
        assert owned(await api.get(f"{maps}/a")) == owned(made)
