"""Custom resources: served from their definition on, validated by its schema, defaulted, pruned, and gone with it."""

import asyncio

import pytest

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SCHEMA = {"type": "object", "required": ["spec"], "properties": {
    "spec": {"type": "object", "required": ["size"], "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "name": {"type": "string", "pattern": "^[a-z]+$", "maxLength": 5},
        "port": {"x-kubernetes-int-or-string": True},
        "note": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "parts": {"type": "array", "maxItems": 3, "items": {"type": "object", "required": ["id"], "properties": {
            "id": {"type": "string"}, "weight": {"type": "integer", "default": 1}}},
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]},
        "rate": {"type": "number", "exclusiveMinimum": True, "minimum": 0},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}}}},
    "status": {"type": "object", "properties": {"phase": {"type": "string"}}}}}
COLUMNS = [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
           {"name": "Phase", "type": "string", "jsonPath": ".status.phase"}]


def definition(group: str, **version) -> dict:
    first = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA},
             "subresources": {"status": {}}, "additionalPrinterColumns": COLUMNS} | version
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": f"toys.{group}"}, "spec": {
                "group": group, "scope": "Namespaced", "versions": [first],
                "names": {"plural": "toys", "singular": "toy", "kind": "Toy", "shortNames": ["ty"]}}}


def toy(path: str, called: str = "a", **spec) -> dict:
    """One for the collection at `path`."""
    _, _, group, version, *_ = path.split("/")
    return {"apiVersion": f"{group}/{version}", "kind": "Toy", "metadata": {"name": called}, "spec": {"size": 3} | spec}


async def served(api, path: str) -> None:
    """Waits until a kind that was just defined answers."""
    for _ in range(300):
        if (await api.ask("GET", path)).status == 200:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{path} is not served")


@pytest.fixture
async def group(api, namespace):
    """A group of the test's own, with a definition of toys."""
    name = f"{namespace}.example.com"
    await api.create(CRDS, definition(name))
    await api.until(CRDS, f"toys.{name}", is_established)
    await served(api, f"/apis/{name}/v1/toys")
    yield name
    await api.ask("DELETE", f"{CRDS}/toys.{name}")


@pytest.fixture
def toys(group, namespace) -> str:
    return f"/apis/{group}/v1/namespaces/{namespace}/toys"


def is_established(crd: dict) -> bool:
    conditions = {each["type"]: each["status"] for each in crd.get("status", {}).get("conditions") or ()}
    return conditions.get("Established") == conditions.get("NamesAccepted") == "True"


async def test_a_definition_says_what_was_accepted(api, group):
    crd = await api.get(f"{CRDS}/toys.{group}")
    assert crd["status"]["acceptedNames"]["plural"] == "toys" and crd["status"]["storedVersions"] == ["v1"]
    assert crd["status"]["acceptedNames"]["listKind"] == "ToyList"


async def test_custom_objects_have_every_verb(api, toys, group, namespace):
    made = await api.create(toys, toy(toys))
    assert (made["apiVersion"], made["kind"], made["metadata"]["generation"]) == (f"{group}/v1", "Toy", 1)
    assert (await api.get(toys))["kind"] == "ToyList" and await api.get(f"{toys}/a") == made
    changed = await api.patch(f"{toys}/a", {"spec": {"size": 4}})
    assert changed["metadata"]["generation"] == 2
    await api.patch(f"{toys}/a", [{"op": "replace", "path": "/spec/size", "value": 5}], api.JSON)
    async with api.watch(toys, resourceVersion=changed["metadata"]["resourceVersion"]) as changes:
        assert (await changes.next())["object"]["spec"]["size"] == 5
    status = await api.patch(f"{toys}/a/status", {"status": {"phase": "Done"}, "spec": {"size": 9}})
    assert (status["status"], status["spec"]["size"]) == ({"phase": "Done"}, 5)
    await api.delete(f"{toys}/a")
    await api.refused(404, "GET", f"{toys}/a")


async def test_strategic_patches_are_for_built_in_kinds(api, toys):
    await api.create(toys, toy(toys))
    answer = await api.ask("PATCH", f"{toys}/a", {"spec": {"size": 4}}, media=api.STRATEGIC)
    assert answer.status == 415


@pytest.mark.parametrize(("spec", "field", "words"), [
    ({"size": 0}, "spec.size", "should be greater than or equal to 1"),
    ({"size": 10}, "spec.size", "should be less than or equal to 9"),
    ({"size": "3"}, "spec.size", "must be of type integer"),
    ({"size": 3.5}, "spec.size", "must be of type integer"),
    ({"size": None}, "spec.size", "Required value"),
    ({"color": "green"}, "spec.color", 'supported values: "red", "blue"'),
    ({"name": "UPPER"}, "spec.name", "should match '^[a-z]+$'"),
    ({"name": "toolong"}, "spec.name", "5"),
    ({"parts": [{"id": str(index)} for index in range(4)]}, "spec.parts", "3 items"),
    ({"parts": [{"weight": 1}]}, "spec.parts[0].id", "Required value"),
    ({"parts": [{"id": "x"}, {"id": "x"}]}, "spec.parts[1]", "Duplicate value"),
    ({"rate": 0}, "spec.rate", "should be greater than 0"),
    ({"labels": {"a": 1}}, "spec.labels.a", "must be of type string"),
    ({"port": True}, "spec.port", "must be of type integer"),
    ({"port": 0.5}, "spec.port", "must be of type integer,string"),
])
async def test_objects_that_break_the_schema_are_refused_with_the_field(api, toys, spec, field, words):
    status = await api.refused(422, "POST", toys, toy(toys, **spec))
    causes = {each["field"]: each["message"] for each in status["details"]["causes"]}
    assert field in causes and words in causes[field], causes
    assert status["reason"] == "Invalid"
    assert status["message"].startswith("Toy.") and '"a" is invalid' in status["message"]


async def test_updates_and_patches_are_validated_too(api, toys):
    made = await api.create(toys, toy(toys))
    await api.refused(422, "PUT", f"{toys}/a", {**made, "spec": {"size": 0}})
    await api.refused(422, "PATCH", f"{toys}/a", {"spec": {"size": 0}}, media=api.MERGE)
    await api.refused(422, "PATCH", f"{toys}/a/status", {"status": {"phase": 7}}, media=api.MERGE)
    assert await api.get(f"{toys}/a") == made


async def test_both_sorts_of_int_or_string_are_taken(api, toys):
    assert (await api.create(toys, toy(toys, "a", port=80)))["spec"]["port"] == 80
    assert (await api.create(toys, toy(toys, "b", port="http")))["spec"]["port"] == "http"


async def test_defaults_are_filled_in(api, toys):
    made = await api.create(toys, toy(toys, parts=[{"id": "x"}, {"id": "y", "weight": 7}]))
    assert made["spec"]["color"] == "red"
    assert [each["weight"] for each in made["spec"]["parts"]] == [1, 7]
    assert (await api.create(toys, toy(toys, "b", color=None)))["spec"]["color"] == "red"


async def test_unknown_fields_are_pruned_but_where_all_are_kept(api, toys):
    made = await api.create(toys, {**toy(toys, extra=1, free={"any": {"thing": [1]}}, note=None), "more": {}})
    assert made["spec"]["free"] == {"any": {"thing": [1]}} and "extra" not in made["spec"] and "more" not in made
    assert made["spec"]["note"] is None


async def test_unknown_fields_are_refused_where_that_is_asked(api, toys):
    status = await api.refused(400, "POST", toys, toy(toys, extra=1), fieldValidation="Strict")
    assert 'unknown field "spec.extra"' in status["message"]


async def test_tables_have_the_columns_of_the_definition(api, toys):
    await api.create(toys, toy(toys))
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = (await api.ask("GET", toys, accept=accept)).thing
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", "Size", "Phase"]
    assert table["rows"][0]["cells"] == ["a", 3, None]


async def test_custom_kinds_are_discovered(api, group):
    groups = {each["name"] for each in (await api.get("/apis"))["groups"]}
    assert group in groups
    found = {each["name"]: each for each in (await api.get(f"/apis/{group}/v1"))["resources"]}
    assert found["toys"]["shortNames"] == ["ty"] and found["toys/status"]["verbs"] == ["get", "patch", "update"]


async def test_versions_share_their_objects(api, namespace):
    group = f"{namespace}.example.com"
    two = definition(group)
    two["spec"]["versions"].append({**two["spec"]["versions"][0], "name": "v1beta1", "storage": False})
    await api.create(CRDS, two)
    try:
        old, new = (f"/apis/{group}/{version}/namespaces/{namespace}/toys" for version in ("v1beta1", "v1"))
        await served(api, old)
        await served(api, new)
        made = await api.create(old, toy(old))
        assert made["apiVersion"] == f"{group}/v1beta1"
        found = await api.get(f"{new}/a")
        assert found["apiVersion"] == f"{group}/v1" and found["metadata"]["uid"] == made["metadata"]["uid"]
    finally:
        await api.delete(f"{CRDS}/toys.{group}")


async def test_a_definition_takes_its_objects_along(api, group, toys, namespace):
    await api.create(toys, toy(toys))
    await api.delete(f"{CRDS}/toys.{group}")
    await api.gone(CRDS, f"toys.{group}")
    for _ in range(300):
        if (await api.ask("GET", toys)).status == 404:
            break
        await asyncio.sleep(0.1)
    assert (await api.ask("GET", toys)).status == 404
    await api.create(CRDS, definition(group))
    await served(api, toys)
    assert (await api.get(toys))["items"] == []


@pytest.mark.parametrize(("change", "field"), [
    ({"scope": "Galaxy"}, "spec.scope"),
    ({"versions": []}, "spec.versions"),
    ({"names": {"plural": "Toys", "kind": "Toy"}}, "spec.names.plural"),
    ({"versions": [{"name": "v1", "served": True, "storage": True}]}, "spec.versions[0].schema.openAPIV3Schema"),
])
async def test_definitions_that_cannot_be_are_refused(api, namespace, change, field):
    crd = definition(f"{namespace}.example.com")
    crd["spec"] |= change
    status = await api.refused(422, "POST", CRDS, crd)
    assert any(each["field"].startswith(field) for each in status["details"]["causes"]), status["details"]["causes"]


async def test_a_definition_is_named_after_its_kind(api, namespace):
    crd = definition(f"{namespace}.example.com")
    crd["metadata"]["name"] = "other.example.com"
    status = await api.refused(422, "POST", CRDS, crd)
    assert any(each["field"] == "metadata.name" for each in status["details"]["causes"])


async def test_schemas_must_be_structural(api, namespace):
    crd = definition(f"{namespace}.example.com", schema={"openAPIV3Schema": {
        "type": "object", "properties": {"spec": {"properties": {"x": {"type": "string"}}}}}})
    status = await api.refused(422, "POST", CRDS, crd)
    assert any(each["field"].endswith("openAPIV3Schema.properties[spec].type") for each in status["details"]["causes"])


async def test_custom_objects_say_what_they_are(api, toys, group):
    for missing in ("kind", "apiVersion"):
        thing = toy(toys)
        del thing[missing]
        await api.refused(400, "POST", toys, thing)


async def test_a_custom_kind_is_scaled_where_its_definition_says(api, namespace):
    group = f"{namespace}.example.com"
    number = {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": number, "status": number}}}
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas",
             "labelSelectorPath": ".status.selector"}
    await api.create(CRDS, definition(group, schema=schema, subresources={"status": {}, "scale": paths}))
    try:
        toys = f"/apis/{group}/v1/namespaces/{namespace}/toys"
        await served(api, toys)
        found = {each["name"]: each for each in (await api.get(f"/apis/{group}/v1"))["resources"]}
        assert (found["toys/scale"]["group"], found["toys/scale"]["kind"]) == ("autoscaling", "Scale")
        made = await api.create(toys, {**toy(toys), "spec": {"replicas": 2}})
        await api.patch(f"{toys}/a/status", {"status": {"replicas": 1, "selector": "app=x"}})
        scale = await api.get(f"{toys}/a/scale")
        assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
        assert scale["spec"] == {"replicas": 2} and scale["status"] == {"replicas": 1, "selector": "app=x"}
        assert scale["metadata"]["uid"] == made["metadata"]["uid"]
        put = await api.replace(f"{toys}/a/scale", {**scale, "spec": {"replicas": 3}})
        assert put["spec"] == {"replicas": 3}
        await api.refused(409, "PUT", f"{toys}/a/scale", scale)
        patched = await api.patch(f"{toys}/a/scale", {"spec": {"replicas": 4}})
        assert patched["spec"] == {"replicas": 4} and (await api.get(f"{toys}/a"))["spec"] == {"replicas": 4}
        status = await api.refused(422, "PATCH", f"{toys}/a/scale", {"spec": {"replicas": -1}}, media=api.MERGE)
        assert status["details"]["causes"][0]["field"] == ".spec.replicas"
    finally:
        await api.delete(f"{CRDS}/toys.{group}")
