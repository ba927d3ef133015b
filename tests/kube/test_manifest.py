"""Files of objects are read as Kubernetes reads them, and a wrong one is told in one line."""

import pytest

from fairway.kube.manifest import Unreadable, load


@pytest.fixture
def read(tmp_path):
    def read(text):
        file = tmp_path / "objects.yaml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(str(file))

    return read


@pytest.mark.parametrize(
    "text, value",
    [
        ("2026-11-21T14:20:00Z", "2026-11-21T14:20:00Z"),
        ("2026-11-21", "2026-11-21"),
        ("12:30:00", "12:30:00"),
        ("1e3", 1000.0),
        ("0.5", 0.5),
        ("010", 8),
        ("0x1F", 31),
        ("-3", -3),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("99999999999999999999", "99999999999999999999"),
        ("yes", True),
        ("null", None),
        ("64Gi", "64Gi"),
        ("'8'", "8"),
    ],
)
def test_a_plain_word_means_what_kubernetes_means(read, text, value):
    assert read(f"a: {text}") == [{"a": value}]


def test_keys_are_text_whatever_they_look_like(read):
    assert read("1: a\ntrue: b\n2.5: c\nnull: d") == [{"1": "a", "true": "b", "2.5": "c", "null": "d"}]


def test_documents_and_lists_are_opened(read):
    text = "kind: A\n---\n---\nkind: List\nitems: [{kind: B}, {kind: List, items: [{kind: C}]}]\n"
    assert [one["kind"] for one in read(text)] == ["A", "B", "C"]


def test_json_is_read_too(read):
    assert read('{"kind": "List", "items": [{"kind": "A"}]}') == [{"kind": "A"}]
    assert read('[{"kind": "A"}]') == [{"kind": "A"}]


@pytest.mark.parametrize(
    "text, words",
    [
        ("a: 1\nb: 2\na: 3", "line 3: 'a' stands twice"),
        ("a: [", "line 2: did not find expected node content"),
        ("a: &x [*x]", "an alias stands inside what it names"),
        ("a: !!python/object:os.system {}", "line 1: could not determine a constructor"),
        ("a: !!timestamp 2026-01-01", "line 1: could not determine a constructor"),
        ("{? [1]: 2}", "line 1: found unhashable key"),
        (b"\xff\xff", "invalid leading UTF-8 octet"),
        ("[" * 5000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_one_line(read, text, words):
    with pytest.raises(Unreadable) as told:
        read(text)
    assert words in str(told.value)
    assert "\n" not in str(told.value)


def test_a_small_file_cannot_stand_for_endlessly_much(read):
    layers = "".join(f"{up}: &{up} [{', '.join([f'*{down}'] * 9)}]\n" for down, up in zip("abcdefgh", "bcdefghi"))
    with pytest.raises(Unreadable, match="too many values"):
        read("a: &a [x, x, x, x, x, x, x, x, x]\n" + layers)
