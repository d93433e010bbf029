# SPDX-License-Identifier: Apache-2.0
"""The page for people, in a real browser: each screen, each action, hostile names, a lost connection."""
import json
import pathlib
import smtplib
import sqlite3
from email.message import EmailMessage

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

import demo
from harness import Clock, wait_until

HOSTILE = "<img src=x onerror=\"document.title='owned'\">"
VIEWS = ["", "matrix", "events", "why", "agents", "inboxes", "mailboxes", "attachments", "leases", "leases/connections", "queues", "outbox",
         "contracts", "approvals", "holds", "dead-letters"]
AXE = pathlib.Path(__file__).parent / "node_modules" / "axe-core" / "axe.min.js"


def due_message(start):
    """A daemon with one message that is due and that only a sweep by hand removes."""
    daemon = start(message_ttl_ms=1000, message_sweep_ms=86_400_000)
    api = daemon.client()
    key = api.send("bob", "old")["id"]
    api.read("bob", key)
    wait_until(lambda: api.matrix("messages")["due_rows"] == 1, 10, "the message is due")
    return daemon, api, key


def tokens(daemon, **wanted):
    """The secrets of an admin's token and of another with these fields."""
    admin = daemon.client().post("/v1/tokens", {"owner": "ops", "admin": True}).ok(201)["token"]
    return admin, daemon.client(token=admin).post("/v1/tokens", wanted).ok(201)["token"]


def sign_in(browser, daemon, secret, view=""):
    browser.driver.get(f"http://127.0.0.1:{daemon.port}/#/{view}")
    browser.type("dialog input[name=token]", secret)
    browser.click("dialog button.primary")
    browser.see("nav a[aria-current]")


def test_overview_says_that_all_is_well_and_draws_its_charts(daemon, browser):
    demo.fleet(daemon.client())
    browser.open(daemon)
    browser.see("#health", "Every lifetime is being kept.")
    browser.see(".hero .say", "Nothing needs you.")
    for name in ("messages", "agents", "housekeeping"):
        row = browser.see(".scroll tr", name)
        assert "in " in row.text, "its next run"
    for tile, value in (("Agents", "141"), ("Breaker", "closed"), ("Clock", "trusted"), ("Holds", "0"), ("Dead letters", "0")):
        assert value in browser.see(".tile", tile).text
    browser.see("figure", "Requests")
    wait_until(browser.steady(lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, "figure path.line")) >= 2), 20, "lines in the charts")
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, "figure")) == 4


def test_overview_says_what_needs_a_person(start, tmp_path, browser):
    clock = Clock(tmp_path)  # it stands still, and so the suspects stay
    daemon = start(clock=clock, agent_evict_after_ms=90_000, agent_sweep_ms=30_000, agent_breaker_min=2)
    for i in range(5):
        daemon.client().post(f"/v1/agents/a{i}/heartbeat", {"cluster_id": "red"}).ok()
    clock.advance(91_000)
    wait_until(lambda: daemon.metric("lapse_agents_suspect") == 5, 20, "suspects")
    browser.open(daemon)
    browser.see(".hero.warn li", "5 agents fell silent together")
    browser.see(".tile", "open")
    browser.go("agents")
    browser.see("p.warn", "The breaker is open")
    browser.click("input[name=include_suspect]")
    browser.click(".filters button")
    browser.see("td .badge", "suspect")


def test_a_dead_daemon_is_named(daemon, browser):
    browser.open(daemon)
    browser.see("#health.good")
    daemon.kill()
    browser.see("#health.bad", "cannot be reached")
    browser.problems()  # the lost connection is in the console; it is expected here


def test_matrix_shows_what_a_sweep_would_remove_before_it_does(start, browser):
    daemon, api, _ = due_message(start)
    browser.open(daemon, "matrix")
    browser.click("article.due button", "Dry run")
    assert "1" in browser.see("dialog td.n").text
    browser.click("dialog button.primary", "Close")
    browser.gone("dialog")
    assert api.matrix("messages")["due_rows"] == 1
    browser.click("article.due button", "Sweep…")
    browser.see("dialog td", "messages")
    browser.click("dialog button.primary", "Sweep now")
    browser.see("#notices p", "1 row removed")
    assert api.get("/v1/agents/bob/messages").ok()["data"] == []


def test_a_cancelled_sweep_removes_nothing(start, browser):
    daemon, api, _ = due_message(start)
    browser.open(daemon, "matrix")
    browser.click("article.due button", "Sweep…")
    browser.click("dialog button[value=no]")
    browser.gone("dialog")
    assert api.matrix("messages")["due_rows"] == 1


def test_matrix_counts_what_a_hold_keeps(start, browser):
    daemon, api, key = due_message(start)
    api.put(f"/v1/holds/messages/{key}", {"reason": "audit"}).ok()
    browser.open(daemon, "matrix")
    browser.type("main input[type=search]", "messages")
    wait_until(browser.steady(lambda: "1 undeletable" in browser.see("article", "messages").text), 20, "one is undeletable")
    assert "1 held" in browser.see("article dd", "held").text


def test_why_tells_the_life_of_a_message(start, browser):
    daemon, api, key = due_message(start)
    browser.open(daemon)
    browser.type("#thing", key + Keys.ENTER)
    browser.see("h1", key)
    browser.see("article .badge", "due")
    assert "the next sweep of messages removes it" in browser.see("article .say").text
    for moment in ("message.sent", "message.read", "was due"):
        browser.see(".timeline li", moment)
    browser.click("article button", "Hold…")
    browser.type("dialog input[name=reason]", "case 7")
    browser.click("dialog button.primary")
    browser.see("article .badge", "held")
    browser.see(".timeline li", "hold.placed")
    api.delete(f"/v1/holds/messages/{key}").ok()
    api.sweep()
    browser.driver.refresh()
    browser.see("main p", "It is gone.")
    browser.see(".timeline li.inferred", "message.pruned")


def test_why_of_a_name_that_nothing_has(daemon, browser):
    browser.open(daemon, "why/nobody%2Fat%20all")
    browser.see("main p", "Nothing is known by this name")
    browser.driver.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.driver.switch_to.active_element.get_attribute("id") == "thing"


def test_the_fleet_is_mapped_by_cluster_silent_ones_first(daemon, browser):
    api = daemon.client()
    api.post("/v1/agents/old/heartbeat", {"cluster_id": "red"}).ok()
    for i in range(3):
        api.post(f"/v1/agents/new-{i}/heartbeat", {"cluster_id": "blue", "capabilities": ["chat"]}).ok()
    browser.open(daemon, "agents")
    browser.see(".map button", "blue")
    assert "old" in browser.see(".scroll tbody tr").text, "the most silent first"
    browser.click(".map button", "blue")
    wait_until(browser.steady(lambda: [row.text.split()[0] for row in browser.driver.find_elements(By.CSS_SELECTOR, ".long tbody tr")]
                              == ["new-0", "new-1", "new-2"]), 20, "only the cluster's agents")


def test_an_agent_is_forgotten(daemon, browser):
    api = daemon.client()
    api.post("/v1/agents/bob/heartbeat", {"cluster_id": "red"}).ok()
    browser.open(daemon, "agents/bob")
    browser.click("button.danger", "Forget")
    browser.click("dialog button.primary")
    browser.see("#notices p", "bob is forgotten")
    assert api.get("/v1/agents/bob").status == 404


def test_the_overview_names_the_replicas_of_a_cluster(daemon, browser):
    """tests/cluster has real ones; here the answer is put in the place of the daemon's."""
    rows = [{"number": n, "state": state, "name": name} for n, state, name in ((1, "live", "a"), (2, "expelled", "b"), (3, "live", "c"))]
    script = browser.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": f"""
        const real = window.fetch;
        window.fetch = (url, ...rest) => String(url).includes("/v1/replicas")
          ? Promise.resolve(new Response(JSON.stringify({{ cluster: true, data: {json.dumps(rows)} }}),
                                         {{ headers: {{ "Content-Type": "application/json" }} }})) : real(url, ...rest);"""})
    try:
        browser.open(daemon)
        tile = browser.see(".tiles a, .tile, main a", "Replicas")
        assert tile.text.split("\n") == ["Replicas", "2", "1, 3"], tile.text
    finally:
        browser.driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script["identifier"]})


def test_a_silent_agent_is_silent_everywhere(start, browser):
    """Not silent in one list and live in the other."""
    daemon = start(agent_evict_after_ms=30_000)
    daemon.client().post("/v1/agents/bob/heartbeat", {"cluster_id": "red"}).ok()
    wait_until(lambda: daemon.client().get("/v1/fleet").ok()["silent"] == 1, 60, "bob is silent")
    browser.open(daemon, "agents")
    browser.see(".long td", "bob")
    states = [e.text for e in browser.driver.find_elements(By.CSS_SELECTOR, "td .badge")]
    assert states == ["silent", "silent"], states


def test_a_message_is_sent_opened_and_marked_as_read(daemon, browser):
    browser.open(daemon, "inboxes/bob")
    browser.click("main button", "Send…")
    browser.type("dialog textarea", "meet me at noon")
    browser.click("dialog button.primary")
    browser.see("#notices p", "Sent to bob")
    browser.click("td button.link", "operator")
    browser.see("pre", "meet me at noon")
    browser.click(".reader button", "Mark as read")
    browser.see(".reader .badge", "read")
    message = daemon.client().get("/v1/agents/bob/messages").ok()["data"][0]
    assert message["read"] and message["content"] == "meet me at noon"


def test_inboxes_lead_to_their_messages(daemon, browser):
    daemon.client().send("bob", "hello")
    daemon.client().claim("bob", visibility_ms=600_000).ok()
    browser.open(daemon, "inboxes")
    browser.click("td a", "bob")
    browser.see("h1", "bob")
    browser.see("td", "hello")
    browser.see("td .badge", "claimed")


def test_mailboxes_are_made_renewed_and_deleted(daemon, browser):
    api = daemon.client()
    browser.open(daemon, "mailboxes")
    browser.click("main button", "New mailbox")
    browser.click("td a", "@lapse.local")
    browser.see("dd", "active")
    before = api.get("/v1/mailboxes").ok()["data"][0]["expires_at"]
    browser.click("button", "Renew")
    browser.see("#notices p", "Renewed")
    assert api.get("/v1/mailboxes").ok()["data"][0]["expires_at"] > before
    browser.click("button.danger", "Delete…")
    browser.click("dialog button.primary")
    wait_until(lambda: api.get("/v1/mailboxes").ok()["data"] == [], 10, "the mailbox is gone")


def test_html_of_a_mail_runs_nothing_and_loads_nothing(daemon, browser):
    box = demo.mailboxes(daemon.client())[0]
    browser.open(daemon, f"mailboxes/{box['id']}")
    browser.click("td button.link")
    browser.see("pre", "493201")
    browser.click("summary", "Show its HTML")
    frame = browser.see("iframe")
    browser.driver.switch_to.frame(frame)
    assert "493201" in browser.driver.find_element(By.TAG_NAME, "body").text
    assert browser.driver.find_element(By.TAG_NAME, "img").get_property("naturalWidth") == 0
    browser.driver.switch_to.default_content()
    assert frame.get_attribute("sandbox") == "" and browser.driver.title != "owned"
    assert all("192.0.2.1" in problem or "Blocked script" in problem for problem in browser.problems()), "refused, and nothing else"


def test_files_of_a_mail_are_named_and_downloaded(start, tmp_path, browser):
    daemon = start(lmtp_listen=f"unix:{tmp_path}/lmtp")
    box = daemon.client().post("/v1/mailboxes", {}).ok(201)
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Shop <noreply@shop.example>", box["address"], HOSTILE
    mail.set_content("Your invoice")
    mail.add_attachment(b"%PDF-1.4 bytes", maintype="application", subtype="pdf", filename=f"{HOSTILE}.pdf")
    with smtplib.LMTP(f"{tmp_path}/lmtp") as lmtp:
        lmtp.send_message(mail)
    browser.open(daemon, f"mailboxes/{box['id']}")
    browser.click("td button.link")
    browser.see(".reader h2", "<img src=x")
    browser.see(".files li", "14 B, application/pdf")
    saved = tmp_path / "downloads"
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(saved)})
    browser.click(".files button")
    wait_until(lambda: saved.is_dir() and [f.read_bytes() for f in saved.iterdir()] == [b"%PDF-1.4 bytes"], 20, "the file was saved")
    assert browser.driver.title != "owned"


def test_attachments_are_listed_and_deleted(daemon, browser):
    api = daemon.client()
    for _ in range(2):
        api.upload(b"the same bytes", name="twice.txt")
    browser.open(daemon, "attachments")
    browser.see(".figures", "1 files")
    browser.see("td .badge", "deduplicated")
    browser.click("td button", "Delete…")
    browser.click("dialog button.primary")
    browser.see("#notices p", "twice.txt is deleted")
    assert api.get("/v1/attachments").ok()["data"] == []


def test_leases_are_listed_and_released(daemon, browser):
    api = daemon.client()
    api.put("/v1/leases/workspace_leases/repo", {"holder": "ann", "ttl_ms": 600_000}).ok()
    browser.open(daemon, "leases")
    browser.see("td", "ann")
    browser.click("td button", "Release…")
    browser.click("dialog button.primary")
    browser.see("#notices p", "repo is released")
    assert api.get("/v1/leases/workspace_leases/repo").status == 404


def test_failed_queue_items_are_retried_one_and_all(daemon, browser):
    api = daemon.client()
    for i in range(3):
        api.post("/v1/queues/channel_inbox", {"payload": {"n": i}}).ok(201)
    for item in api.post("/v1/queues/channel_inbox/claim", {"worker": "w", "limit": 3}).ok()["data"]:
        api.post(f"/v1/queues/channel_inbox/{item['id']}/fail", {"worker": "w", "attempt": item["attempt"], "error": "broken"}).ok()
    browser.open(daemon, "queues")
    browser.click(".figures a", "3 failed")
    browser.see("td", "broken")
    browser.click("td button", "Retry")
    browser.see("#notices p", "It is queued again")
    browser.click("main button", "Retry all…")
    browser.see("dialog", "2 items go back")
    browser.click("dialog button.primary")
    browser.see("#notices p", "2 items are queued again")
    assert api.get("/v1/queues").ok()["data"][0]["queued"] == 3


def test_outbox_consumers_show_their_lag(daemon, browser):
    api = daemon.client()
    for i in range(5):
        api.post("/v1/outbox", {"topic": "orders", "payload": {"n": i}}).ok(201)
    cursor = api.get("/v1/outbox", limit=2).ok()["next_cursor"]
    api.put("/v1/outbox/consumers/billing", {"cursor": cursor}).ok()
    browser.open(daemon, "outbox")
    assert "3 rows" in browser.see("tr", "billing").text
    browser.see("td .badge", "orders")


def test_holds_are_placed_and_released(daemon, browser):
    api = daemon.client()
    key = api.send("bob")["id"]
    browser.open(daemon, "holds")
    browser.click("main button", "Hold a row…")
    browser.type("dialog input[name=key]", key)
    browser.type("dialog input[name=reason]", "audit")
    browser.click("dialog button.primary")
    browser.see("td", "audit")
    assert api.get(f"/v1/holds/messages/{key}").ok()["reason"] == "audit"
    browser.click("td button", "Release…")
    browser.click("dialog button.primary")
    browser.see("#notices p", "Released")
    assert api.get(f"/v1/holds/messages/{key}").status == 404


def test_dead_letters_are_retried_one_and_all_and_dropped(start, browser):
    daemon = start(backup_keep=1, cleanup_max_attempts=1)
    api = daemon.client()
    for _ in range(3):  # a surplus backup whose name a directory has taken cannot be deleted
        name = api.post("/v1/backup").ok(201)["file"].split("/")[-1]
        path = daemon.data_dir / "backups" / name
        path.unlink()
        path.mkdir()
    api.post("/v1/backup").ok(201)
    wait_until(lambda: len(api.get("/v1/dead-letters").ok()["data"]) == 3, 20, "three dead letters")
    browser.open(daemon, "dead-letters")
    browser.click("td button", "Retry")
    browser.see("#notices p", "Tried again")
    wait_until(lambda: len(api.get("/v1/dead-letters").ok()["data"]) == 3, 20, "it has given up again")
    browser.click("main button", "Retry all…")
    browser.click("dialog button.primary")
    browser.see("#notices p", "3 deletions are tried again")
    wait_until(lambda: len(api.get("/v1/dead-letters").ok()["data"]) == 3, 20, "they have given up again")
    browser.open(daemon)
    browser.see(".hero.warn li", "3 deletions outside gave up")
    browser.go("dead-letters")
    browser.click("td button", "Drop…")
    browser.click("dialog button.primary")
    browser.see("#notices p", "Dropped")
    assert len(api.get("/v1/dead-letters").ok()["data"]) == 2


def test_a_contract_is_planned_and_its_sweep_approved(start, tmp_path, browser):
    with sqlite3.connect(tmp_path / "shop.db") as db:
        db.execute("CREATE TABLE carts (id INTEGER PRIMARY KEY, e INTEGER)")
        db.execute("CREATE INDEX carts_e ON carts (e)")
        db.executemany("INSERT INTO carts VALUES (?, 5)", [(i,) for i in range(1500)])
    contract = tmp_path / "shop.yaml"
    contract.write_text(json.dumps({"contract": 1, "name": "shop", "database": f"sqlite:{tmp_path}/shop.db", "schedulers": {"s": {"every": "1s"}},
                                    "bounds": [{"scheduler": "s", "table": "carts", "key": "id", "expires": "e", "time": "ms"}]}))
    daemon = start(args=("--contract", str(contract)))
    api = daemon.client()
    wait_until(lambda: api.get("/v1/approvals").ok()["data"], 20, "an approval is wanted")
    browser.open(daemon)
    browser.see(".hero.warn li", "1 sweep waits for your approval")
    browser.go("contracts")
    browser.see("td .badge", "waits for approval")
    browser.click("main button", "Plan")
    browser.see("dialog pre", "1500")
    browser.click("dialog button.primary")
    browser.go("matrix")
    browser.see("article p", "for your approval")
    browser.go("approvals")
    browser.click("td button", "Approve…")
    browser.see("dialog", "1,500 rows")
    browser.click("dialog button.primary")
    browser.see("#notices p", "shop:carts is approved")
    with sqlite3.connect(tmp_path / "shop.db") as db:
        wait_until(lambda: db.execute("SELECT count(*) FROM carts").fetchone() == (0,), 20, "the rows are gone")


def test_events_are_filtered_and_paused(daemon, browser):
    api = daemon.client()
    browser.open(daemon, "events")
    browser.see(".filters .badge", "live")
    api.send("bob", "one")
    browser.see(".events b", "message.sent")
    browser.type("input[name=type]", "mailbox.")
    browser.see(".events li", "No event matches")
    api.post("/v1/mailboxes", {}).ok(201)
    browser.see(".events b", "mailbox.created")
    browser.click(".filters button", "Pause")
    api.post("/v1/mailboxes", {}).ok(201)
    browser.see(".filters", "1 while paused")
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".events li")) == 1
    browser.click(".filters button", "Resume")
    wait_until(lambda: len(browser.driver.find_elements(By.CSS_SELECTOR, ".events li")) == 2, 20, "what came meanwhile")


def test_many_events_are_drawn_over_several_frames_in_order(daemon, browser):
    browser.open(daemon, "events")
    browser.see(".filters .badge", "live")
    ids = [daemon.client().send("bob", f"number {i}")["id"] for i in range(100)]
    lines = "return [...document.querySelectorAll('.events li')].map((li) => li.title)"
    wait_until(lambda: browser.driver.execute_script(lines) == ids[:-81:-1], 30, "the newest eighty, newest first")
    texts = browser.driver.execute_script("return [...document.querySelectorAll('.events span')].map((s) => s.textContent)")
    assert all(id in text for id, text in zip(ids[:-81:-1], texts))


def test_events_resume_after_a_lost_connection(daemon, browser):
    browser.open(daemon, "events")
    browser.see(".filters .badge", "live")
    daemon.client().send("bob", "one")
    browser.see(".events span", '"to":"bob"')
    port = daemon.port
    daemon.stop()
    browser.see(".filters .badge", "lost")
    daemon.restart(listen=f"127.0.0.1:{port}")
    daemon.client().send("cat", "two")  # perhaps before the page is back: it is not lost
    browser.see(".events span", '"to":"cat"')
    browser.see(".filters .badge", "live")
    assert browser.text().count('"to":"bob"') == 1
    browser.problems()


def test_hostile_names_stay_text(daemon, browser):
    api = daemon.client()
    api.post("/v1/agents/x%3Cb%3E/heartbeat", {"cluster_id": "c<script>", "capabilities": ["<b>"]}).ok()
    api.send("bob", HOSTILE + "</pre><script>document.title='owned'</script>", sender=HOSTILE)
    api.upload(b"x", name=HOSTILE)
    api.post("/v1/queues/channel_inbox", {"payload": {HOSTILE: HOSTILE}, "key": HOSTILE}).ok(201)
    key = api.get("/v1/agents/bob/messages").ok()["data"][0]["id"]
    shown = [("agents", ".map b", "c<script>"), ("inboxes/bob", "td", "<img src=x"), ("attachments", "td", "<img src=x"),
             ("queues", "td", "<img src=x"), (f"why/{key}", ".timeline", "<img src=x"), ("why/%3Cimg%20src%3Dx%3E", "h1", "<img src=x>")]
    for view, selector, text in shown:
        browser.open(daemon, view)
        browser.see(selector, text)
        assert browser.driver.find_elements(By.CSS_SELECTOR, "main img, main script") == []
    browser.go("inboxes/bob")
    browser.click("td button.link")
    browser.see("pre", "<script>")
    assert "owned" not in browser.driver.title


def test_a_token_is_asked_for_and_a_reload_forgets_it(daemon, browser):
    secret = daemon.client().post("/v1/tokens", {"owner": "ops", "admin": True}).ok(201)["token"]
    browser.driver.get(f"http://127.0.0.1:{daemon.port}/")
    browser.type("dialog input[name=token]", "wrong")
    browser.click("dialog button.primary")
    browser.see("#notices p.bad")
    browser.type("dialog input[name=token]", secret)
    browser.click("dialog button.primary")
    browser.see("#who", "admin")
    stored = browser.driver.execute_script("return [localStorage.length, sessionStorage.length, document.cookie]")
    assert stored == [0, 0, ""]
    browser.driver.refresh()
    browser.see("dialog input[name=token]")
    browser.problems()


def test_a_token_without_admin_sees_no_admin_sections(daemon, browser):
    _, secret = tokens(daemon, owner="fleet")
    sign_in(browser, daemon, secret, "matrix")
    browser.see("article h2", "messages")
    assert "Dead letters" not in browser.text() and "Sweep…" not in browser.text()
    browser.problems()


def test_a_read_only_token_sees_no_buttons(daemon, browser):
    admin, secret = tokens(daemon, owner="fleet", scopes=["read"])
    api = daemon.client(token=secret)
    owner = daemon.client(token=admin)
    owner.post("/v1/agents/bob/messages", {"from": "ann", "content": "x"}, headers={"X-Lapse-Owner": "fleet"}).ok(201)
    owner.post("/v1/mailboxes", {}, headers={"X-Lapse-Owner": "fleet"}).ok(201)
    owner.put("/v1/leases/workspace_leases/repo", {"holder": "ann", "ttl_ms": 600_000}, headers={"X-Lapse-Owner": "fleet"}).ok()
    box = api.get("/v1/mailboxes").ok()["data"][0]["id"]
    sign_in(browser, daemon, secret)
    browser.see("#who", "read only")
    for view, shown in (("inboxes/bob", "ann"), (f"mailboxes/{box}", "active"), ("leases", "repo"), ("matrix", "messages"), ("queues", "channel inbox")):
        browser.go(view)
        browser.see("main", shown)
        buttons = [b.text for b in browser.driver.find_elements(By.CSS_SELECTOR, "main button:not(.link)") if b.is_displayed()]
        assert buttons == [], view
    browser.problems()


def test_an_admin_acts_for_another_owner(daemon, browser):
    api = daemon.client()
    api.post("/v1/agents/theirs/heartbeat", {"cluster_id": "red"}, headers={"X-Lapse-Owner": "fleet"}).ok()
    browser.open(daemon, "agents")
    browser.see(".empty", "No agent")
    browser.click("#who button.link", "local")
    browser.type("dialog input[name=owner]", "fleet")
    browser.click("dialog button.primary")
    browser.see("td", "theirs")
    browser.see("#who", "fleet")


def test_a_long_list_keeps_few_rows_in_the_document(daemon, browser):
    for part in range(10):
        lines = "".join(f"agent-{i:06d},c{i % 9}\n" for i in range(part * 10_000, (part + 1) * 10_000))
        daemon.client().request("POST", "/v1/heartbeats", body=lines, headers={"Content-Type": "text/csv"}).ok()
    browser.open(daemon, "agents")
    browser.see(".long td", "agent-000000")
    assert "100,000 agents" in browser.see("main p", "agents").text
    bottom = "const b = document.querySelector('.long'); b.scrollTop = b.scrollHeight; return b.scrollHeight"
    wait_until(browser.steady(lambda: browser.driver.execute_script(bottom) > 40 * 1500), 30, "fifteen pages are there", 0.05)
    assert len(browser.driver.find_elements(By.CSS_SELECTOR, ".long tbody tr")) < 120


@pytest.mark.parametrize("width", [360, 768, 2560])
def test_no_view_is_wider_than_the_window(daemon, browser, width):
    demo.fill(daemon.client())
    daemon.client().send("bob", "word " * 200, sender="a" * 120)
    browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    try:
        browser.open(daemon)
        for view in [*VIEWS, "inboxes/bob"]:
            browser.go(view)
            browser.settle(view)
            assert browser.driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth"), view
    finally:
        browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(daemon, browser, scheme):
    if not AXE.exists():
        pytest.fail("axe-core is missing: make deps-node")
    boxes = demo.fill(daemon.client())
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    key = daemon.client().get("/v1/agents/planner-000/messages").ok()["data"][0]["id"]
    browser.open(daemon)
    browser.driver.execute_script(AXE.read_text())
    found = []
    for view in [*VIEWS, "inboxes/planner-000", f"mailboxes/{boxes[0]['id']}", f"why/{key}", "queues/channel_inbox/failed"]:
        browser.go(view)
        browser.settle(view)
        result = browser.driver.execute_async_script(
            "const done = arguments[0]; axe.run(document, { resultTypes: ['violations'] }).then(done, (e) => done({ violations: [{ id: String(e), impact: 'serious', nodes: [] }] }))")
        found += [(view, v["id"], [n["html"][:120] for n in v["nodes"]][:3]) for v in result["violations"] if v["impact"] in ("serious", "critical")]
    assert found == []


def test_the_files_are_compressed_cached_and_locked_down(daemon):
    api = daemon.client()
    page = api.request("GET", "/", headers={"Accept-Encoding": "gzip"})
    assert page.headers["content-encoding"] == "gzip"
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    plain = api.request("GET", "/web/main.js")
    assert plain.headers["content-type"] == "text/javascript; charset=utf-8" and "content-encoding" not in plain.headers
    assert plain.headers["etag"].startswith('"') and plain.headers["cache-control"] == "no-cache"
    again = api.request("GET", "/web/main.js", headers={"If-None-Match": plain.headers["etag"]})
    assert again.status == 304
    assert api.get("/web/nothing.js").status == 404


def test_nothing_is_asked_of_another_server(daemon, browser):
    browser.open(daemon)
    for view in VIEWS:
        browser.go(view)
        browser.settle(view)
    names = browser.driver.execute_script("return performance.getEntriesByType('resource').map((r) => new URL(r.name).host)")
    assert set(names) == {f"127.0.0.1:{daemon.port}"}
