// SPDX-License-Identifier: Apache-2.0
// The page: sign-in, sections, and which view is shown. A view is a module whose `view(context, ...path)` returns
// { element, stop? }; it is loaded when it is first asked for.
import { ApiError, actFor, get, hasToken, segment, setToken } from "./api.js";
import { ask, every, fill, h, notice } from "./dom.js";

const GROUPS = [
  { title: "Now", sections: [
    { path: "", title: "Overview", file: "overview", room: "engine" },
    { path: "matrix", title: "Matrix", file: "matrix", room: "engine" },
    { path: "events", title: "Events", file: "events", room: "events" },
    { path: "why", title: "Why?", file: "why", room: "events" },
  ] },
  { title: "Rooms", sections: [
    { path: "agents", title: "Agents", file: "agents", room: "agents" },
    { path: "inboxes", title: "Inboxes", file: "inboxes", room: "messages" },
    { path: "mailboxes", title: "Mailboxes", file: "mailboxes", room: "mailboxes" },
    { path: "attachments", title: "Attachments", file: "attachments", room: "attachments" },
    { path: "leases", title: "Leases", file: "leases", room: "tables" },
    { path: "queues", title: "Queues", file: "queues", room: "tables" },
    { path: "outbox", title: "Outbox", file: "outbox", room: "tables" },
    { path: "contracts", title: "Contracts", file: "contracts", room: "contracts" },
  ] },
  { title: "Yours to decide", admin: true, sections: [
    { path: "approvals", title: "Approvals", file: "approvals", room: "contracts" },
    { path: "holds", title: "Holds", file: "holds", room: "engine" },
    { path: "dead-letters", title: "Dead letters", file: "deadletters", room: "engine" },
  ] },
];

/** Who looks, and what the token may do: `sees(room)`, and `can(room)` change things of it. */
const context = { admin: false, owner: "", scopes: [], sees: () => false, can: () => false };
let current = null, shows = 0;

function setCaller(me) {
  const may = (what) => (room) => me.scopes.includes(what) || me.scopes.includes(`${room}:${what}`);
  Object.assign(context, me, { sees: may("read"), can: may("write") });
}

/** Asks for a token until the server takes it, or it needs none. */
async function signIn() {
  for (;;) {
    try {
      setCaller(await get("/v1/whoami"));
      return drawCaller();
    } catch (e) {
      if (!(e instanceof ApiError) || e.status !== 401) throw e;
      if (hasToken()) notice(e.message, "bad");
      const given = await ask("Sign in", [{ name: "token", label: "Token", type: "password", required: true }], "Sign in",
        "The page keeps the token in memory only. Closing or reloading it forgets the token.");
      setToken(given?.token);
    }
  }
}

/** An admin can look at the things of another owner. */
async function chooseOwner() {
  const given = await ask("Whose things?", [{ name: "owner", label: "Owner", value: context.owner }], "Show",
    "As an admin you can act for any owner. Leave it empty for your own.");
  if (!given) return;
  actFor(given.owner);
  setCaller(await get("/v1/whoami"));
  drawCaller();
  show();
}

function drawCaller() {
  const readOnly = !context.scopes.some((s) => s.endsWith("write"));
  const kind = readOnly ? "read only" : context.admin ? "admin" : "owner";
  fill(document.getElementById("who"),
    context.admin ? h("button", { class: "link", onclick: chooseOwner, title: "Act for another owner" }, context.owner) : h("span", {}, context.owner),
    h("span", { class: "badge quiet" }, kind),
    hasToken() ? h("button", { onclick: () => { setToken(null); location.reload(); } }, "Sign out") : null);
}

/** The groups with the sections that this token may see. */
function groups() {
  return GROUPS.filter((g) => context.admin || !g.admin)
    .map((g) => ({ ...g, sections: g.sections.filter((s) => context.sees(s.room)) })).filter((g) => g.sections.length > 0);
}

function drawSections(active) {
  const link = (s) => h("li", {}, h("a", { href: `#/${s.path}`, "aria-current": s === active ? "page" : null }, s.title));
  fill(document.getElementById("sections"), groups().map((g) => [h("p", {}, g.title), h("ul", {}, g.sections.map(link))]));
  document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function findSection(path) {
  const shown = groups().flatMap((g) => g.sections);
  return shown.find((s) => s.path === path) ?? shown[0];
}

async function show() {
  const mine = ++shows;
  const [path, ...rest] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  const section = findSection(path), main = document.getElementById("view");
  current?.stop?.();
  current = null;
  drawSections(section);
  if (section.path !== "why") document.getElementById("thing").value = "";
  document.title = `${rest[0] ? `${rest[0]} · ` : ""}${section.title} · lapse`;
  try {
    const { view } = await import(`./views/${section.file}.js`);
    if (mine !== shows) return; // another one was asked for meanwhile
    current = view(context, ...rest);
    fill(main, current.element);
  } catch (e) {
    fill(main, h("p", { class: "bad" }, `This view could not be shown: ${e.message}`));
  }
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function search(event) {
  event.preventDefault();
  const thing = document.getElementById("thing").value.trim();
  if (thing) location.hash = `#/why/${segment(thing)}`;
}

/** One sentence in the header: is everything kept? */
async function drawHealth() {
  const line = document.getElementById("health");
  const say = (tone, text) => {
    if (line.textContent === text && line.className === tone) return; // read aloud only when it changes
    line.className = tone;
    fill(line, h("span", { class: "dot" }), text);
  };
  try {
    const response = await fetch("/readyz", { cache: "no-store" });
    const answer = await response.json();
    const reasons = (answer.reasons ?? []).join("; ");
    if (response.ok) say("good", "Every lifetime is being kept.");
    else say("bad", `Not ready: ${reasons || answer.error?.message || answer.status}`);
  } catch {
    say("bad", "The daemon cannot be reached. The page tries again by itself.");
  }
}

function onKey(e) {
  if (e.key !== "/" || e.ctrlKey || e.metaKey || e.altKey || /^(input|textarea|select)$/i.test(e.target.tagName)) return;
  e.preventDefault();
  document.getElementById("thing").focus();
}

async function start() {
  every(5000, drawHealth);
  for (;;) {
    try {
      await signIn();
      break;
    } catch (e) {
      fill(document.getElementById("view"), h("p", { class: "bad" }, e.message));
      await new Promise((wake) => setTimeout(wake, 3000));
    }
  }
  document.getElementById("search").addEventListener("submit", search);
  addEventListener("keydown", onKey);
  addEventListener("hashchange", show);
  addEventListener("unhandledrejection", (e) => {
    if (e.reason?.name === "AbortError") return;
    e.preventDefault();
    notice(e.reason?.message ?? String(e.reason), "bad");
  });
  await show();
}

start();
