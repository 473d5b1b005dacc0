"""Reading and writing cfg files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from undertow.darknet.files.cfg import Config, Section, make_config, parse_cfg, read_cfg
from undertow.errors import FormatError, UndertowWarning

SMALL = "[net]\nwidth=4\nheight=4\nchannels=1\n\n[maxpool]\nsize=2\nstride=2\n"


def pairs(section: Section) -> dict[str, str | None]:
    return {entry.key: entry.value for entry in section.entries}


def test_sections_and_entries_keep_their_lines() -> None:
    config = parse_cfg(SMALL, "small.cfg")
    assert [(section.name, section.line) for section in config.sections] == [("net", 1), ("maxpool", 6)]
    assert [(entry.key, entry.value, entry.line) for entry in config.layers[0].entries] == [
        ("size", "2", 7),
        ("stride", "2", 8),
    ]
    assert config.net.line_of("height") == 3
    assert config.net.line_of("absent", "channels") == 4
    assert config.net.line_of("absent") == 1


@pytest.mark.parametrize("comment", ["# all of it", "; all of it", "  \t# indented", "#"])
def test_comment_lines(comment: str) -> None:
    config = parse_cfg(SMALL.replace("width", f"{comment}\nwidth"))
    assert pairs(config.net) == pairs(parse_cfg(SMALL).net)


def test_a_mark_inside_a_value_is_no_comment() -> None:
    config = parse_cfg("[net]\nmap=data/a#b;c.map # a map\n")
    assert config.net.entries[0].value == "data/a#b;c.map"


def test_blanks_inside_a_value_are_kept_for_file_names() -> None:
    entry = parse_cfg("[net]\ntree = my data/9k.tree  # hierarchy\n").net.entries[0]
    assert entry.value == "mydata/9k.tree"
    assert entry.raw == "my data/9k.tree"


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_line_ends(end: str) -> None:
    assert parse_cfg(SMALL.replace("\n", end)) == parse_cfg(SMALL)


def test_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "bom.cfg"
    path.write_bytes(b"\xef\xbb\xbf" + SMALL.encode())
    assert pairs(read_cfg(path).net) == pairs(parse_cfg(SMALL).net)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (SMALL.encode("utf-16"), "UTF-16"),
        (b"\0\0\0\0\x02\0\0\0", "zero byte"),
        (b"[net]\nwidth=\0\n", "zero byte"),
        (b"", "empty"),
        (b"# only a comment\n", "no section"),
        (b"just text\n", "outside a section"),
        (b"[net\nwidth=3\n", "not a section header"),
        (b"[]\nwidth=3\n", "not a section header"),
        (b"[net] width=3\n", "not a section header"),
        (b"[net]\n=3\n", "cannot be a key"),
    ],
)
def test_files_that_are_no_cfg(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "bad.cfg"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=reason) as caught:
        read_cfg(path)
    assert caught.value.file == str(path)


def test_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="No such file"):
        read_cfg(tmp_path / "absent.cfg")
    with pytest.raises(FormatError, match=r"cannot be read"):
        read_cfg(tmp_path)
    with pytest.raises(FormatError, match="zero byte"):
        read_cfg("a\0b")


def test_file_too_large_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.cfg"
    with path.open("wb") as stream:
        stream.truncate(3 * 1024 * 1024)
    with pytest.raises(FormatError, match="too large"):
        read_cfg(path)


def test_all_problems_are_told_at_once() -> None:
    text = SMALL + "a=\nb\n" + "c\n" * 10
    with pytest.raises(FormatError) as caught:
        parse_cfg(text, "many.cfg")
    message = str(caught.value)
    assert message.startswith("many.cfg:9: key 'a' has no value; line 10: 'b' has no '='; line 11")
    assert "and 7 more" in message


def test_equal_keys_are_told_once() -> None:
    with pytest.warns(UndertowWarning, match="lines 2 and 3") as told:
        config = parse_cfg("[net]\nbatch=1\nbatch=2\nbatch=3\n")
    assert len(told) == 1
    assert pairs(config.net) == {"batch": "1"}


def test_first_section_must_be_net() -> None:
    with pytest.raises(FormatError, match=r"\[maxpool\], it must be \[net\]"):
        _ = parse_cfg("[maxpool]\nsize=2\n").net


def test_written_and_read_again(tmp_path: Path) -> None:
    config = parse_cfg("# made by hand\n" + SMALL.replace("=", " = "))
    path = tmp_path / "again.cfg"
    config.write(path)
    assert path.read_text() == SMALL
    assert read_cfg(path).to_text() == SMALL
    with pytest.raises(FormatError, match="cannot be written"):
        config.write(tmp_path / "absent" / "again.cfg")


def test_bytes_that_are_not_utf8_survive(tmp_path: Path) -> None:
    path, again = tmp_path / "latin.cfg", tmp_path / "again.cfg"
    path.write_bytes(b"[net]\nmap=caf\xe9.map\n")
    read_cfg(path).write(again)
    assert again.read_bytes() == path.read_bytes()


def test_values_changed() -> None:
    config = parse_cfg(SMALL).with_values(0, {"width": 8, "momentum": 0.9}).with_values(1, {"stride": 1})
    assert pairs(config.net) == {"width": "8", "height": "4", "channels": "1", "momentum": "0.9"}
    assert pairs(config.layers[0]) == {"size": "2", "stride": "1"}


def test_made_config() -> None:
    config = make_config([("net", {"width": 4, "steps": (10, 20), "adam": True}), ("yolo", {"anchors": [1.5, 2.0]})])
    assert config.to_text() == "[net]\nwidth=4\nsteps=10,20\nadam=1\n\n[yolo]\nanchors=1.5,2.0\n"
    with pytest.raises(FormatError, match="cannot be written"):
        make_config([("net", {"map": "a\nb=1"})])


_WORD = st.text(
    st.characters(codec="utf-8", exclude_characters=" \t\r\n=#;[]\0", exclude_categories=["C", "Z"]), min_size=1
)
_SECTIONS = st.lists(st.tuples(_WORD, st.dictionaries(_WORD, _WORD, max_size=4)), min_size=1, max_size=5)


@given(_SECTIONS)
def test_any_config_survives_writing(sections: list[tuple[str, dict[str, str]]]) -> None:
    config: Config = make_config(sections)
    assert [(s.name, pairs(s)) for s in config.sections] == sections
    again = parse_cfg(config.to_text())
    assert again.to_text() == config.to_text()
