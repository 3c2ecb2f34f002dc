"""The view helper, in a browser: escaping, keyed lists, signals."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Page

pytestmark = pytest.mark.asyncio(loop_scope="package")

VIEW = "const {h, patch, signal, effect, flush, View} = await import('./view.js');"


async def run(modules: Page, code: str) -> Any:
    """Run code in a page of the console, with the helper at hand."""
    return await modules.evaluate(f"async () => {{ {VIEW} {code} }}")


async def test_text_never_becomes_markup(modules: Page) -> None:
    shown = await run(
        modules,
        """const root = document.createElement('div');
        const bad = '<img src=x onerror=alert(1)>';
        patch(root, [h('p', {title: bad}, bad), bad]);
        return [root.querySelectorAll('img').length, root.textContent, root.firstChild.title]""",
    )
    bad = "<img src=x onerror=alert(1)>"
    assert shown == [0, bad * 2, bad]


@pytest.mark.parametrize("address", ["javascript:alert(1)", "https://example.com/", "data:,x"])
async def test_addresses_that_run_code_or_leave_are_refused(modules: Page, address: str) -> None:
    raised = await run(
        modules,
        f"""try {{ patch(document.createElement('div'), h('a', {{href: '{address}'}}, 'x')); }}
        catch (error) {{ return error.name }} return ''""",
    )
    assert raised == "TypeError"


async def test_handlers_are_functions(modules: Page) -> None:
    raised = await run(
        modules,
        """try { patch(document.createElement('div'), h('a', {onclick: 'alert(1)'})); }
        catch (error) { return error.name } return ''""",
    )
    assert raised == "TypeError"


async def test_keyed_children_keep_their_elements_when_they_move(modules: Page) -> None:
    kept = await run(
        modules,
        """const root = document.createElement('ul');
        const show = (keys) => patch(root, keys.map((key) => h('li', {key}, String(key))));
        show([1, 2, 3, 4]);
        const before = new Map([...root.children].map((each) => [each.textContent, each]));
        show([4, 5, 2, 1]);
        const isKept = (each) => before.get(each.textContent) === each;
        return [root.textContent, [...root.children].map(isKept)]""",
    )
    assert kept == ["4521", [True, False, True, True]]


async def test_two_children_with_one_key_are_a_mistake(modules: Page) -> None:
    raised = await run(
        modules,
        """try { patch(document.createElement('ul'), [h('li', {key: 1}), h('li', {key: 1})]); }
        catch (error) { return error.message } return ''""",
    )
    assert raised == "two children have the key 1"


async def test_attributes_and_handlers_that_are_gone_are_removed(modules: Page) -> None:
    found = await run(
        modules,
        """const root = document.createElement('div'); let clicks = 0;
        const onclick = () => { clicks += 1; };
        patch(root, h('button', {title: 'a', style: {color: 'red'}, onclick}, 'x'));
        root.firstChild.click();
        patch(root, h('button', {}, 'x'));
        root.firstChild.click();
        const {style, title} = root.firstChild;
        return [clicks, title, style.color, root.childNodes.length]""",
    )
    assert found == [1, "", "", 1]


async def test_svg_is_svg_and_nothing_is_left_out_but_nothing(modules: Page) -> None:
    found = await run(
        modules,
        """const root = document.createElement('div');
        patch(root, [h('svg', null, h('g', null, h('rect', {width: 5}))), null, false, 0]);
        return [root.querySelector('rect').namespaceURI, root.textContent]""",
    )
    assert found == ["http://www.w3.org/2000/svg", "0"]


async def test_an_effect_runs_once_for_several_changes_and_not_after_its_end(
    modules: Page,
) -> None:
    seen = await run(
        modules,
        """const a = signal(1), b = signal(1), seen = [];
        const end = effect(() => { seen.push(a.value + b.value); });
        a.value = 2; b.value = 3; flush();
        a.value = 2; flush();
        end(); a.value = 9; flush();
        return seen""",
    )
    assert seen == [2, 5]


async def test_an_effect_depends_on_what_it_read_last(modules: Page) -> None:
    seen = await run(
        modules,
        """const which = signal(true), a = signal('a'), b = signal('b'), seen = [];
        effect(() => { seen.push(which.value ? a.value : b.value); });
        which.value = false; flush();
        a.value = 'x'; flush();
        b.value = 'y'; flush();
        return seen""",
    )
    assert seen == ["a", "b", "y"]


async def test_an_element_begins_and_ends_with_the_document(modules: Page) -> None:
    seen = await run(
        modules,
        """const text = signal('one'), seen = [];
        class Example extends View {
          begin() { seen.push('begin'); this.endings.push(() => seen.push('end')); }
          render() { return h('p', null, text.value); }
        }
        customElements.define('fencelog-example', Example);
        const made = document.createElement('fencelog-example');
        document.body.append(made); seen.push(made.textContent);
        text.value = 'two'; flush(); seen.push(made.textContent);
        made.remove(); text.value = 'three'; flush(); seen.push(made.textContent);
        return seen""",
    )
    assert seen == ["begin", "one", "two", "end", "two"]
