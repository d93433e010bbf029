# SPDX-License-Identifier: Apache-2.0
"""`lapse why`: the life of a thing, for people and for programs."""


def test_a_message_that_stays(lapse):
    key = lapse("message", "send", "bob", "hello", "--from", "ann").out.strip()
    shown = lapse("why", key).out
    assert "state" in shown and "protected" in shown and "unread ones never" in shown
    assert "message.sent" in shown and "bob" in shown
    answer = lapse.json("why", key)
    assert answer["things"][0]["key"] == key and answer["timeline"][0]["type"] == "message.sent"


def test_a_name_that_nothing_has(lapse):
    ran = lapse("why", "nobody", code=5)
    assert ran.out == "" and "nothing is known by this name" in ran.err


def test_a_hostile_name_is_escaped(lapse):
    lapse("agent", "heartbeat", "a\u202eb", "--cluster", "red")
    assert "\u202e" not in lapse("why", "a\u202eb").out
