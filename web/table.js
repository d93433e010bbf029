// SPDX-License-Identifier: Apache-2.0
// A list of the API as a table: one page at a time is asked for, and only the rows in sight are in the document, so that
// a list of a hundred thousand stays quick.
import { get } from "./api.js";
import { fill, h } from "./dom.js";

const ROW_PX = 40;     // style.css gives every row of a long table this height
const SPARE_ROWS = 12; // above and below what is in sight
const PAGE_ROWS = 100; // the most the API gives at once

/** columns: [{ title, cell(row) → node or text, class? }]. `href(row)` makes the first cell a link, `onrow` a button;
 *  `onload(n)` is told how many rows are there so far. */
export class LongTable {
  constructor({ path, query = {}, columns, href, onrow, empty = "Nothing here.", label, onload = () => {} }) {
    Object.assign(this, { path, query, columns, href, onrow, empty, onload });
    this.rows = [];
    this.more = true;
    this.asking = false;
    this.drawn = "";
    this.body = h("tbody");
    this.foot = h("p", { class: "foot", role: "status" }, "Loading…");
    this.box = h("div", { class: "long", tabindex: 0, role: "region", "aria-label": label, onscroll: () => this.draw() },
      h("table", {}, h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col", class: c.class }, c.title)))),
        this.body));
    this.element = h("div", { class: "panel" }, this.box, this.foot);
    this.load();
  }

  async load() {
    if (this.asking || !this.more) return;
    this.asking = true;
    try {
      const page = await get(this.path, { ...this.query, limit: PAGE_ROWS, after: this.cursor });
      this.rows.push(...page.data);
      this.more = page.pagination?.has_more ?? false;
      this.cursor = page.pagination?.next_cursor;
      this.say();
      this.onload(this.rows.length);
    } catch (e) {
      this.more = false;
      fill(this.foot, h("span", { class: "bad" }, `The list could not be loaded: ${e.message}`));
    }
    this.asking = false;
    this.draw(true);
  }

  say() {
    const shown = this.rows.length.toLocaleString("en");
    fill(this.foot, this.rows.length === 0 ? this.empty : `${shown} shown${this.more ? "; scroll for more" : ""}`);
  }

  draw(anew = false) {
    const inSight = Math.ceil((this.box.clientHeight || 600) / ROW_PX);
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW_PX) - SPARE_ROWS);
    const last = Math.min(this.rows.length, first + inSight + 2 * SPARE_ROWS);
    const window = `${first} ${last}`;
    if (anew || window !== this.drawn) {
      this.drawn = window;
      fill(this.body, this.gap(first), this.rows.slice(first, last).map((r) => this.row(r)), this.gap(this.rows.length - last));
    }
    if (last === this.rows.length) this.load();
  }

  gap(rows) {
    if (rows === 0) return null;
    const cell = h("td", { colspan: this.columns.length });
    cell.style.height = `${rows * ROW_PX}px`;
    return h("tr", { class: "gap", "aria-hidden": "true" }, cell);
  }

  row(r) {
    const cells = this.columns.map((c) => h("td", { class: c.class }, c.cell(r)));
    const inside = [...cells[0].childNodes];
    if (this.href) fill(cells[0], h("a", { href: this.href(r) }, inside));
    else if (this.onrow) fill(cells[0], h("button", { class: "link", onclick: () => this.onrow(r) }, inside));
    return h("tr", {}, cells);
  }
}
