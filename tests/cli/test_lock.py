# SPDX-License-Identifier: Apache-2.0
"""`lapse lock`: a program under a lease."""
import os
import signal
import time

import pytest
import requests

from runner import LIMIT_S, Lapse

TABLE = "workspace_leases"


def lease(lapse, key):
    return requests.get(f"{lapse.env['LAPSE_URL']}/v1/leases/{TABLE}/{key}", timeout=10)


def test_a_program_has_its_token(lapse, agent):
    ran = lapse("lock", TABLE, agent, "sh", "-c",
                "echo $LAPSE_LEASE_TABLE $LAPSE_LEASE_KEY $LAPSE_LEASE_HOLDER $LAPSE_FENCING_TOKEN")
    table, key, holder, token = ran.out.split()
    assert (table, key) == (TABLE, agent) and ":" in holder and int(token) > 0
    assert lease(lapse, agent).status_code == 404  # released with the program's end
    later = lapse("lock", TABLE, agent, "--holder", "me", "sh", "-c", "echo $LAPSE_LEASE_HOLDER $LAPSE_FENCING_TOKEN")
    assert later.out.split()[0] == "me" and int(later.out.split()[1]) > int(token)


def test_the_exit_code_is_the_programs(lapse, agent):
    lapse("lock", TABLE, agent, "--", "sh", "-c", "exit 9", code=9, silent=True)
    assert lease(lapse, agent).status_code == 404


def test_one_at_a_time(lapse, agent, tmp_path):
    process = lapse.start("lock", TABLE, agent, "--holder", "first", "--ttl", "2s", "sh", "-c", "echo up; exec sleep 4")
    assert process.stdout.readline() == b"up\n"
    assert f"{TABLE}/{agent} is held by first" in lapse("lock", TABLE, agent, "touch", str(tmp_path / "x"), code=1).err
    assert "is held by first" in lapse("lock", TABLE, agent, "--wait", "300ms", "true", code=7).err
    assert not (tmp_path / "x").exists()
    time.sleep(2.2)  # longer than the lease: it was renewed
    assert lease(lapse, agent).json()["holder"] == "first"
    lapse("lock", TABLE, agent, "--wait", "15s", "true")
    assert process.wait(LIMIT_S) == 0
    process.stdout.close()
    process.stderr.close()


def test_a_lost_lease_ends_the_program(lapse, agent):
    process = lapse.start("lock", TABLE, agent, "--ttl", "600ms", "sh", "-c", "echo up; exec sleep 30")
    assert process.stdout.readline() == b"up\n"
    os.kill(process.pid, signal.SIGSTOP)
    lapse("lock", TABLE, agent, "--wait", "15s", "--holder", "other", "--ttl", "1m", "true")
    requests.put(f"{lapse.env['LAPSE_URL']}/v1/leases/{TABLE}/{agent}", json={"holder": "other", "ttl_ms": 60000},
                 timeout=10).raise_for_status()
    os.kill(process.pid, signal.SIGCONT)
    assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert b"the program is stopped" in process.stderr.read()
    assert lease(lapse, agent).json()["holder"] == "other"  # and was not released by the loser
    process.stdout.close()
    process.stderr.close()


def test_a_lease_that_cannot_be_renewed_ends_the_program(start):
    daemon = start()
    process = Lapse(daemon.url).start("lock", TABLE, "k", "--ttl", "900ms", "sh", "-c", "echo up; exec sleep 30")
    assert process.stdout.readline() == b"up\n"
    assert daemon.stop() == 0
    assert process.wait(LIMIT_S) == 128 + signal.SIGTERM
    assert b"could not be renewed in time" in process.stderr.read()
    process.stdout.close()
    process.stderr.close()


@pytest.mark.parametrize("words, says", [(["lock", TABLE, "k"], "PROGRAM is missing"), (["lock", TABLE], "KEY is missing")])
def test_usage(words, says):
    assert says in Lapse("http://127.0.0.1:1")(*words, code=2).err


def test_no_such_table(lapse):
    lapse("lock", "nonsense", "k", "true", code=5)
