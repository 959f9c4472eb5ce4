"""Bytes of a pipe → messages, and the time left."""

import json

import pytest

from MemorizationIndexLib.gui.messages import LineReader, TimeLeft, duration_in_words


def line(**fields):
    return json.dumps(fields).encode() + b"\n"


def test_messages_may_be_cut_anywhere():
    data = line(type="progress", done=1) + line(type="note", text="Müller 患者")
    for cut in range(len(data) + 1):
        reader = LineReader()
        found = reader.feed(data[:cut]) + reader.feed(data[cut:])
        assert [message["type"] for message in found] == ["progress", "note"]
        assert found[1]["text"] == "Müller 患者" and reader.other == []


def test_what_is_no_message_is_kept_as_text_and_never_raises():
    reader = LineReader()
    noise = b'Warnung: M\xfcller\r\n\xff\xfe\n[1, 2]\n{}\n"x"\n'
    assert reader.feed(noise + line(type="alive")) == [{"type": "alive"}]
    assert reader.other == ["Warnung: M�ller", "��", "[1, 2]", "{}", '"x"']


def test_an_endless_line_does_not_fill_the_memory():
    reader = LineReader()
    for _ in range(40):
        reader.feed(b"x" * 100_000)
    assert len(reader._pending) <= 1 << 20
    reader.feed(b"\n")
    assert reader.feed(line(type="alive")) == [{"type": "alive"}]


def test_the_time_left_follows_the_pace_of_the_stage():
    left = TimeLeft()
    assert left.update(0.0, "Encoding", 0, 100) is None
    assert left.update(0.5, "Encoding", 10, 100) is None
    assert left.update(10.0, "Encoding", 20, 100) == pytest.approx(40.0)
    assert left.update(11.0, "Scoring", 1, 100) is None
    assert left.update(12.0, "Scoring", 1, 0) is None


def test_a_stage_keeps_its_pace_when_another_comes_between():
    left = TimeLeft()
    left.update(0.0, "Scoring", 0, 300)
    left.update(10.0, "Scoring", 100, 300)
    assert left.update(10.0, "Gathering pictures", 0, 0) is None
    assert left.update(11.0, "Scoring", 110, 300) == pytest.approx(19.0)
    assert left.update(20.0, "Verifying", 0, 100) is None
    assert left.update(30.0, "Verifying", 0, 100) is None, "the first one took its time"
    assert left.update(32.0, "Verifying", 20, 100) == pytest.approx(8.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(3, "a few seconds"), (31, "about 30 s"), (70, "about 1 min"), (5000, "about 1.4 h")],
)
def test_a_duration_is_said_as_people_say_it(seconds, words):
    assert duration_in_words(seconds) == words
