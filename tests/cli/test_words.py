from __future__ import annotations

import pytest

from undertow.cli.words import Command, Flag, UsageError, Words, nearest

COMMAND = Command(
    "try",
    ("DATA", "CFG", "[WEIGHTS]"),
    (
        Flag("clear", "switch", "start over"),
        Flag("thresh", "number", "confidence", "X", 0.5, least=0, most=1),
        Flag("save_every", "whole", "iterations", "N", least=1),
        Flag("out", "text", "name", "NAME"),
        Flag("gpus", "list", "devices", "0,1"),
        Flag("stage", "text", "stages", "NAMES", ""),
        Flag("precision", "text", "kernels", "NAME", "fast", choices=("fast", "precise")),
    ),
    "tries",
    lambda words: 0,
)


def parse(*arguments: str) -> Words:
    return COMMAND.parse(arguments)


def test_flags_may_stand_anywhere() -> None:
    for order in (
        ("a.data", "a.cfg", "-thresh", ".25", "w.weights", "-clear"),
        ("-clear", "-thresh", ".25", "a.data", "a.cfg", "w.weights"),
        ("a.data", "--thresh=.25", "a.cfg", "--clear", "w.weights"),
    ):
        words = parse(*order)
        assert (words["DATA"], words["CFG"], words["WEIGHTS"]) == ("a.data", "a.cfg", "w.weights")
        assert (words["thresh"], words["clear"], words["save_every"], words["out"]) == (0.25, True, None, None)


def test_optional_words_left_out_are_empty() -> None:
    words = parse("a.data", "a.cfg")
    assert words["WEIGHTS"] == ""
    assert words["clear"] is False
    assert words.given == ()


def test_a_value_may_begin_with_a_dash() -> None:
    assert parse("a", "b", "-out", "-x")["out"] == "-x"
    assert parse("-0.5", "b")["DATA"] == "-0.5"


def test_a_switch_may_have_a_value() -> None:
    for value, expected in (("true", True), ("1", True), ("false", False), ("NO", False)):
        words = parse("a", "b", f"--clear={value}")
        assert words["clear"] is expected
        assert bool(words.given) is expected


def test_the_same_value_twice_is_no_contradiction() -> None:
    words = parse("a", "b", "-save_every", "3", "--save_every=3", "-clear", "-clear")
    assert (words["save_every"], words["clear"], len(words.given)) == (3, True, 2)


def test_lists_and_texts_that_may_be_empty() -> None:
    words = parse("a", "b", "-gpus", "0, 3", "--stage=")
    assert (words["gpus"], words["stage"]) == ((0, 3), "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a", "b", "-tresh", ".5"), r"no flag '-tresh'.*did you mean -thresh\?"),
        (("a", "b", "-zzz"), r"no flag '-zzz'.*the flags are -clear, -thresh"),
        (("a", "b", "-thresh"), r"-thresh needs a value"),
        (("a", "b", "-thresh", "much"), r"-thresh takes a number, not 'much'"),
        (("a", "b", "-thresh", "-1"), r"-thresh -1: at least 0"),
        (("a", "b", "-thresh", "nan"), r"-thresh takes a number, not .nan."),
        (("a", "b", "-thresh", "50"), r"-thresh 50: at most 1. To mend it: -thresh 0.5 is 50 %"),
        (("a", "b", "-save_every", "1.5"), r"-save_every takes a whole number"),
        (("a", "b", "-save_every", str(2**63)), r"-save_every 9223372036854775808: at most 9223372036854775807"),
        (("a", "b", "-precision", "presise"), r"there is fast, precise.*did you mean precise\?"),
        (("a", "b", "-save_every", "1_000"), r"-save_every takes a whole number, not '1_000'"),
        (("a", "b", "-thresh", "inf"), r"-thresh takes a number, not 'inf'"),
        (("a", "b", "-save_every", "1", "-save_every", "2"), r"-save_every stands twice, as '1' and '2'.*give it once"),
        (("a", "b", "-clear", "--clear=no"), r"-clear stands twice, as 'true' and 'no'"),
        (("a", "b", "--clear=maybe"), r"-clear takes no value, or true or false, not 'maybe'.*-clear"),
        (("a", "b", "-gpus", "0,a"), r"-gpus takes whole numbers with commas between them, not '0,a'.*-gpus 0,1"),
        (("a", "b", "-gpus", "0,-1"), r"-gpus takes whole numbers"),
        (("a", "b", "-gpus", ""), r"-gpus takes whole numbers"),
        (("a", "b", "-out", ""), r"-out is given nothing.*-out NAME, or leave the flag out"),
        (("a",), r"try: CFG is missing.*undertow try DATA CFG \[WEIGHTS\] \[flags\]"),
        (("a", ""), r"try: CFG is empty \(''\).*undertow try DATA CFG"),
        (("a", "b", "c", "d"), r"try: 'd' is one word too many"),
    ],
)
def test_what_cannot_be_understood_is_told(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse(*arguments)


def test_percent_is_proposed_for_shares_only() -> None:
    port = Flag("port", "whole", "to serve on", "N", most=65535)
    with pytest.raises(UsageError, match=r"-port 99999: at most 65535. To mend it: -port N$"):
        port.read("99999")


def test_nearest() -> None:
    assert nearest("Trian", ["train", "test"]) == "did you mean train?"
    assert nearest("mAP_epoch", ["map", "mAP_epochs"], "-") == "did you mean -mAP_epochs?"
    assert nearest("qqq", ["train"]) is None
