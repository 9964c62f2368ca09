"""Pages in a real browser; the fixture `chromium` has it."""

import contextlib


@contextlib.contextmanager
def phone(chromium, path):
    """The page in a window of a phone's width; an error on its console is an error here, and a page
    that is wider."""
    errors = []
    page = chromium.new_page(viewport={"width": 390, "height": 800})
    page.on("console", lambda m: errors.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(path.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    yield page
    page.close()
    assert errors == []


def assert_all_is_shown(chromium, path):
    """Of a page that does not change: it fits, and has no broken image."""
    with phone(chromium, path) as page:
        assert page.evaluate("[...document.images].filter(i => !i.naturalWidth).length") == 0


def overlay(page):
    """What the viewer draws over the image."""
    return page.evaluate("document.getElementById('over').toDataURL()")


def wait_for(page, words):
    """The viewer's sentence, once these words are in it."""
    page.wait_for_function(f"document.getElementById('status').textContent.includes('{words}')")
    return page.inner_text("#status")


def point_at(page, row, column, grid):
    box = page.locator("#stage").bounding_box()
    x, y = (column + 0.5) / grid[1], (row + 0.5) / grid[0]
    page.mouse.move(box["x"] + box["width"] * x, box["y"] + box["height"] * y)
