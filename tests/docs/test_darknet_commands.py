"""The page of Darknet's commands is the one the table of commands gives; its examples run with all other pages."""

from __future__ import annotations

import pytest

from tests.docs.darknet_commands import EXAMPLES, NOTES, PAGE, page
from undertow.cli.darknet import ELSEWHERE, groups, singles
from undertow.cli.words import Command

ALL = [*(command for group in groups().values() for command in group), *singles().values()]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "python -m tests.docs.darknet_commands"


def test_every_command_has_an_example() -> None:
    names = {command.name.removeprefix("darknet ") for command in ALL}
    assert set(EXAMPLES) == names
    assert set(NOTES) <= names


@pytest.mark.parametrize("command", ALL, ids=lambda command: command.name)
def test_a_section_names_every_flag(command: Command) -> None:
    text = page()
    own = text.partition(f"### `{command.name.removeprefix('darknet ')}`\n")[2].partition("\n### ")[0]
    shared = text.partition("\n### ")[0]
    for flag in command.flags:
        assert f"`{flag.usage}`" in own + shared or f"`-{flag.name}`" in own or flag.answer is not None


def test_what_is_not_offered_is_listed() -> None:
    for group, names in ELSEWHERE.items():
        for name in names:
            assert f"| `{f'{group} {name}'.strip()}` | " in page()
