"""WCAG AA, computed from the variables of the style sheet: 4.5 for text, 3 for edges of fields and lines of charts."""

import re
from pathlib import Path

import pytest

import popmq_console

STYLE = Path(popmq_console.__file__).parent / "static" / "console.css"
TEXT = [
    *((text, ground) for text in ("text", "faint", "link") for ground in ("page", "card", "raised")),
    ("on-accent", "accent"),
    ("on-bad", "bad"),
    *((word, f"{word}-soft") for word in ("good", "warn", "bad", "idle")),
    ("warn", "card"),
]
EDGES = [(line, "card") for line in ("field", "accent", "s0", "s1", "s2", "bad")] + [("accent", "page")]


def themes() -> dict[str, dict[str, str]]:
    """Variables by theme; the last two are the same colours, by the system's wish and by choice."""
    blocks = re.findall(r"(:root[^{]*)\{([^}]*--page[^}]*)\}", STYLE.read_text())
    names = ["light", "dark by the system", "dark by choice"]
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", body))
        for name, (_, body) in zip(names, blocks, strict=True)
    }


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_the_formula_is_that_of_wcag() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", themes())
@pytest.mark.parametrize(("pairs", "least"), [(TEXT, 4.5), (EDGES, 3)], ids=["text", "edges and lines"])
def test_text_is_readable_on_every_ground_and_edges_can_be_seen(
    theme: str, pairs: list[tuple[str, str]], least: float
) -> None:
    colours = themes()[theme]
    weak = [pair for pair in pairs if contrast(colours[pair[0]], colours[pair[1]]) < least]
    assert weak == []


def test_the_dark_theme_of_the_system_and_the_chosen_one_have_the_same_colours() -> None:
    assert themes()["dark by the system"] == themes()["dark by choice"]
