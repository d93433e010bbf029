# SPDX-License-Identifier: Apache-2.0
"""`lapse clock` and the decision about a leap."""
import pytest

from runner import Lapse, wall_clock_from


def clock(state="jumped", leap_ms=172800000, accepted_in_ms=None):
    return 200, {"trusted": "2026-01-01T00:00:00.000Z", "wall": "2026-01-03T00:00:00.000Z", "state": state,
                 "leap_ms": leap_ms, "accepted_in_ms": accepted_in_ms}


TRUSTED = clock("trusted", 0)


def methods(stub):
    return [method for method, _, _, _ in stub.requests]


def test_a_clock_that_is_right(lapse):
    rows = dict(line.split() for line in lapse("clock").lines)
    assert rows["state"] == "trusted" and rows["leap"] == "0s" and rows["wall"].endswith("Z")
    assert lapse.json("clock")["state"] == "trusted"


def test_nothing_to_accept(lapse):
    assert "no leap" in lapse("clock", "accept", code=1).err
    code, shown = lapse.on_terminal("clock", "accept")
    assert code == 1 and "[y/N]" not in shown


@pytest.mark.parametrize("left_ms, says", [(None, "until it comes back"), (240000, "by itself in 4m,")])
def test_a_leap(stub, left_ms, says):
    stub.script = [clock(accepted_in_ms=left_ms)]
    ran = Lapse(stub.url)("clock")
    assert "state    jumped\n" in ran.out and "leap     2d\n" in ran.out and says in ran.out
    assert "lapse clock accept" in ran.out
    assert "\x1b[33mjumped\x1b[0m" in Lapse(stub.url).on_terminal("clock")[1]


@pytest.mark.parametrize("typed, code, sent", [(b"y\n", 0, ["GET", "POST"]), (b"n\n", 1, ["GET"]),
                                               (b"\n", 1, ["GET"]), (b"\x04", 1, ["GET"])])
def test_accept_asks_on_a_terminal(stub, typed, code, sent):
    stub.script = [clock(), TRUSTED]
    got, shown = Lapse(stub.url).on_terminal("clock", "accept", typed=typed)
    assert got == code and "is 2d ahead of trusted time" in shown and "[y/N]" in shown
    assert methods(stub) == sent and ("nothing was changed" in shown) == (code == 1)


def test_accept_without_asking(stub):
    stub.script = [clock(), TRUSTED]
    code, shown = Lapse(stub.url).on_terminal("clock", "accept", "--yes", env={"NO_COLOR": "1"})
    assert code == 0 and "[y/N]" not in shown and "state    trusted" in shown
    stub.script = [clock(), TRUSTED]
    assert Lapse(stub.url).json("clock", "accept")["state"] == "trusted"
    assert methods(stub) == ["GET", "POST"] * 2


def test_a_real_leap(start, tmp_path):
    env = wall_clock_from(tmp_path / "clock")
    if env is None:
        pytest.skip("needs libfaketime")
    (tmp_path / "clock").write_text("+0\n")
    lapse = Lapse(start(env=env).url)
    assert lapse.json("clock")["state"] == "trusted"
    (tmp_path / "clock").write_text("+2d\n")
    shown = lapse("clock").out
    assert "state    jumped\n" in shown and ("leap     2d\n" in shown or "leap     1d 23h" in shown)
    assert "clock" in lapse("status", code=4, silent=True).out
    top = lapse("top", "--once", "--interval", "100ms").out
    assert "is not ready" in top and "clock jumped, " in top
    code, shown = lapse.on_terminal("clock", "accept", typed=b"n\n")
    assert code == 1 and lapse.json("clock")["state"] == "jumped"
    code, shown = lapse.on_terminal("clock", "accept", typed=b"y\n", env={"NO_COLOR": "1"})
    assert code == 0 and "state    trusted" in shown
    lapse("clock", "accept", code=1)
