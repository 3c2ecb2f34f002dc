"""The decisions of the console on messages: how values are shown, found and copied."""

from __future__ import annotations

import json
from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def core(modules: Page, expression: str) -> Any:
    code = f"""async () => {{ const m = await import('./messages_core.js');
        const {{filterOf}} = await import('./filter.js'); return {expression} }}"""
    return await modules.evaluate(code)


async def test_values_are_shown_in_the_form_that_they_have(modules: Page) -> None:
    found = await core(
        modules,
        """['{"a":1}', 'plain', '\\xff\\x00A'].map((text) =>
            m.decoded(m.bytesOf(btoa(text)), 'auto')).map((each) => [each.form, each.shown])""",
    )
    assert found == [
        ["json", '{\n  "a": 1\n}'],
        ["text", "plain"],
        ["hex", "00000000  ff 00 41" + " " * 41 + "..A"],
    ]


async def msgpack(modules: Page, *values: str) -> Any:
    """Decode bytes in hex."""
    code = """async (values) => { const m = await import('./msgpack.js');
        return values.map((each) => m.fromMsgpack(
            Uint8Array.from(each.match(/../g) ?? [], (byte) => parseInt(byte, 16))) ?? 'none') }"""
    return await modules.evaluate(code, values)


async def test_messagepack_is_decoded(modules: Page) -> None:
    """The examples of its specification, and one of each kind that it has."""
    found = await msgpack(
        modules,
        "82a7636f6d70616374c3a6736368656d6100",
        "93ffd1ff00cfffffffffffffffff",
        "c403010203",
        "cb3ff8000000000000",
        "d60112345678",
        "dd00000001d90161",
        "de000101c2",
        "ca3fc00000",
    )
    assert found == [
        {"compact": True, "schema": 0},
        [-1, -256, {"text": "18446744073709551615"}],
        {"bytes": "010203"},
        1.5,
        {"extension": 1, "bytes": "12345678"},
        ["a"],
        {"1": False},
        1.5,
    ]


async def test_what_is_no_messagepack_is_not_taken_for_some(modules: Page) -> None:
    """Bytes that end early, or go on, an unused type, bad text, lengths beyond the bytes, depth."""
    bad = ("", "c1", "0000", "a261", "a1ff", "dcffff", "dfffffffff", "c6ffffffff00", "91" * 99)
    assert await msgpack(modules, *bad) == ["none"] * len(bad)


async def test_a_structure_in_messagepack_is_shown_and_a_lone_byte_is_not(modules: Page) -> None:
    found = await core(
        modules,
        """[[0x82, 0xa1, 97, 1, 0xa1, 98, 0x91, 0xc0], [0xff]].map((bytes) =>
            m.decoded(Uint8Array.from(bytes), 'auto')).map((each) => [each.form, each.shown])""",
    )
    assert found[0] == ["msgpack", '{\n  "a": 1,\n  "b": [\n    null\n  ]\n}']
    assert found[1][0] == "hex"
    asked = await core(modules, "m.decoded(Uint8Array.from([0x05]), 'msgpack')")
    assert asked == {"form": "msgpack", "shown": "5"}


@pytest.mark.parametrize(
    ("word", "holds"),
    [
        ("$.order", True),
        ("$.absent", False),
        ("$.order.lines[0].sku=APPLE", True),
        ("$.order.lines[*].sku=pear", True),
        ("$.order.*[1].sku=apple", False),
        ("$.total>100", True),
        ("$.total==120", True),
        ("$.total<=119", False),
        ("$.total!=120", False),
        ('$["a.b"]=null', True),
        ("$.constructor", False),
        ("$['a.b']", True),
        ('$["say \\"hi\\""]=x', True),
        ('$.name="a b"', True),
        ("$.name='a b' $.total", True),
        ('$.name="a  b"', False),
        ("$..total", False),
    ],
)
async def test_a_filter_looks_at_a_place_in_a_value(modules: Page, word: str, holds: bool) -> None:
    value = '{order: {lines: [{sku: "Apple"}, {sku: "pear"}]}, total: 120, "a.b": null, '
    value += """name: "A b", 'say "hi"': "x"}"""
    found = await core(
        modules,
        f"m.matches({{base64: btoa(JSON.stringify({value}))}}, filterOf({json.dumps(word)}))",
    )
    assert found is holds


@pytest.mark.parametrize(
    ("filter_", "found"),
    [
        ("order", True),
        ("key:k1", True),
        ("key:order", False),
        ("k1 order", True),
        ("", True),
        ('"an order"', True),
        ('"order an"', False),
        ("'an order'", True),
        ("it's", True),
        ("'it's", False),
        ("header:trace", True),
        ('header:":"', False),
        ("header:trace=a", True),
        ("header:trace=b", False),
        ('header:Team="x y"', True),
        ("header:team=trace", False),
        ("a,b", False),
        ("$5", True),
    ],
)
async def test_a_filter_looks_at_keys_headers_and_values(
    modules: Page, filter_: str, found: bool
) -> None:
    message = """{base64: btoa("An Order. It's $5"), key: 'K1',
        headers: {Trace: 'a', team: 'a x Y'}}"""
    assert await core(modules, f"m.matches({message}, filterOf({json.dumps(filter_)}))") is found


@pytest.mark.parametrize(
    ("word", "rest"),
    [
        ("$..a", "..a"),
        ("$.a[?(@.b)]", "[?(@.b)]"),
        ("$.a[1:2]", "[1:2]"),
        ("$.a['b", "['b"),
        ('$.a="b', '="b'),
        ("$.a=='b'x", "=='b'x"),
        ("$.a!", "!"),
    ],
)
async def test_a_filter_says_what_it_does_not_understand(
    modules: Page, word: str, rest: str
) -> None:
    """Such a filter lets nothing through."""
    code = f"""[filterOf({json.dumps("x " + word)})].map((each) =>
        [each.mistake, m.matches({{base64: btoa('x')}}, each)])[0]"""
    mistake, found = await core(modules, code)
    assert mistake.startswith(f"“{word}” is not understood from “{rest}” on: a place is like")
    assert found is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"from": "earliest"}),
        ("latest", {"from": "latest"}),
        ("42", {"from": "42"}),
        ("2026-01-31 12:00:00", {"from_time": "1769860800000000"}),
        ("2026-01-31T12:00:00+01:00", {"from_time": "1769857200000000"}),
        ("yesterday", None),
        ("-1", None),
    ],
)
async def test_positions_are_read_as_people_write_them(
    modules: Page, text: str, expected: dict[str, str] | None
) -> None:
    assert await core(modules, f"m.positionOf('{text}')") == expected


async def test_what_is_copied_is_quoted(modules: Page) -> None:
    copied = await core(modules, "m.copyAs('curl', 'http://a/', \"n/it's\", 0, 7)")
    assert copied == "curl -sS -i 'http://a/v1/topics/n/it'\\''s/partitions/0/messages/7'"


async def test_the_messages_that_are_kept_are_few_enough_and_small_enough(modules: Page) -> None:
    """A message costs its value, and 200 bytes."""
    code = """[[9, 9999], [2, 9999], [9, 609], [9, 1]].map(([most, bytes]) => {
        const all = [1, 2, 3, 4].map((offset) => ({offset, base64: 'x'.repeat(offset)}));
        return [m.firstWithin(all, most, bytes), m.lastWithin(all, most, bytes),
            m.lastWithin([], 1, 1)].map((kept) => kept.map((each) => each.offset)) })"""
    assert await core(modules, code) == [
        [[1, 2, 3, 4], [1, 2, 3, 4], []],
        [[1, 2], [3, 4], []],
        [[1, 2, 3], [2, 3, 4], []],
        [[1], [4], []],
    ]


BIG = '{"id": 12345678901234567890, "a.b": [-0.10, 1e400, 3.00, "7\\"e8"], "none": [], "no": {}}'


async def test_numbers_that_a_double_does_not_hold_are_shown_as_they_are_written(
    modules: Page,
) -> None:
    shown = await core(
        modules, f"m.decoded(new TextEncoder().encode({json.dumps(BIG)}), 'auto').shown"
    )
    assert json.loads(shown, parse_float=str, parse_int=str) == {
        "id": "12345678901234567890",
        "a.b": ["-0.1", "1e400", "3", '7"e8'],
        "none": [],
        "no": {},
    }
    assert '\n  "none": [],\n  "no": {}\n}' in shown
    assert (await core(modules, "m.decoded(m.bytesOf(btoa('1e')), 'auto')"))["form"] == "text"
    packed = "m.decoded(Uint8Array.from([0x91, 0xcf, ...Array(8).fill(255)]), 'auto').shown"
    assert await core(modules, packed) == "[\n  18446744073709551615\n]"


@pytest.mark.parametrize(
    ("word", "holds"),
    [
        ("$.id=12345678901234567890", True),
        ("$.id=12345678901234567000", False),
        ("$.id=1.234567890123456789e19", True),
        ("$.id>12345678901234567889", True),
        ("$.id>12345678901234567890", False),
        ("$.id<1e20", True),
        ('$["a.b"][0]=-0.1', True),
        ('$["a.b"][0]<-0.09', True),
        ('$["a.b"][0]<=-0', True),
        ('$["a.b"][1]>1e399', True),
        ('$["a.b"][2]=3', True),
        ('$["a.b"][2]>abc', False),
        ('$["a.b"][3]>7', True),
    ],
)
async def test_a_filter_compares_numbers_digit_by_digit(
    modules: Page, word: str, holds: bool
) -> None:
    value = f"{{base64: btoa({json.dumps(BIG)})}}"
    assert await core(modules, f"m.matches({value}, filterOf({json.dumps(word)}))") is holds


async def test_what_is_nested_too_deeply_in_json_is_left_out(modules: Page) -> None:
    code = """['1', '1e9'].map((inner) => m.decoded(new TextEncoder().encode(
        '['.repeat(1e5) + inner + ']'.repeat(1e5)), 'auto')).map((each) => [each.form,
        each.shown.length])"""
    (plain, length), risky = await core(modules, code)
    assert (plain, length < 25_000) == ("json", True)
    assert risky == ["text", 200_003]


async def test_a_value_is_shown_as_far_as_a_page_bears_it(modules: Page) -> None:
    code = """[['{"a":1}', 'auto'],
        ['['.repeat(50) + '1,'.repeat(1e5) + '1' + ']'.repeat(50), 'auto'],
        [' '.repeat(3e5), 'auto'], [' '.repeat(3e5), 'hex']].map(([text, form]) => {
            const found = m.shownOf(new TextEncoder().encode(text), form);
            return [found.form, found.shown.length, found.isCut] })"""
    assert await core(modules, code) == [
        ["json", 12, False],
        ["json", 1024 * 1024, True],
        ["text", 64 * 1024, True],
        ["hex", 4096 * 76 - 1, True],
    ]
