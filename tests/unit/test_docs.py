from collections.abc import Callable

import pytest

from scripts.render_docs import DOCS, PAGES


@pytest.mark.parametrize(("name", "render"), PAGES.items())
def test_a_generated_page_is_what_the_code_says(name: str, render: Callable[[], str]) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == render(), f"docs/{name} is out of date: run `make docs`"
