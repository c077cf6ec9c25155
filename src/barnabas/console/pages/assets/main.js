import { h, link, replace } from "./dom.js";
import { ApiError, get, post } from "./api.js";
import { field, show } from "./dialog.js";
import { tell } from "./refresh.js";
import { overviewPage } from "./overview.js";
import { metricsPage } from "./metrics.js";
import { topicsPage } from "./topics.js";
import { topicPage } from "./topic.js";
import { groupPage, groupsPage } from "./groups.js";
import { transactionsPage } from "./transactions.js";
import { clusterPage } from "./cluster.js";
import { accessPage } from "./access.js";
import { pipelinePage, pipelinesPage } from "./pipelines.js";

const PAGES = [
  ["Overview", "/", /^\/$/, overviewPage],
  ["Metrics", "/metrics", /^\/metrics$/, metricsPage],
  ["Topics", "/topics", /^\/topics$/, topicsPage],
  ["", "", /^\/topics\/([^/]+)(?:\/([a-z]+))?$/, topicPage],
  ["Groups", "/groups", /^\/groups$/, groupsPage],
  ["", "", /^\/groups\/([^/]+)$/, groupPage],
  ["Transactions", "/transactions", /^\/transactions$/, transactionsPage],
  ["Pipelines", "/pipelines", /^\/pipelines$/, pipelinesPage],
  ["", "", /^\/pipelines\/([^/]+)$/, pipelinePage],
  ["Access", "/access", /^\/access$/, accessPage],
  ["Cluster", "/cluster", /^\/cluster$/, clusterPage],
];
const main = document.getElementById("main");
let leave = () => {};
let number = 0;

function location() {
  const [path, search] = window.location.hash.slice(1).split("?");
  return { path: path || "/", parameters: new URLSearchParams(search || "") };
}

// A page gets its element, the parts of its path, its parameters, and the session; it returns what to do when it is left.
async function route(focus) {
  leave();
  leave = () => {};
  tell("");
  const current = (number += 1);
  const { path, parameters } = location();
  for (const each of document.querySelectorAll("#nav a")) {
    const target = each.getAttribute("href").slice(1);
    if (target === path || (target !== "/" && path.startsWith(`${target}/`))) each.setAttribute("aria-current", "page");
    else each.removeAttribute("aria-current");
  }
  const page = PAGES.find(([, , pattern]) => pattern.test(path));
  const element = h("div", {});
  replace(main, element);
  if (!page) {
    replace(element, h("h1", {}, "There is no such page"), link("/", "Overview"));
    return;
  }
  replace(element, h("p", { class: "muted" }, "Loading…"));
  let parts;
  try {
    parts = page[2].exec(path).slice(1).map((each) => (each === undefined ? undefined : decodeURIComponent(each)));
  } catch {
    parts = [];
  }
  document.title = `${parts[0] || page[0] || "Console"} – Barnabas`;
  if (focus) main.focus();
  try {
    const left = await page[3]({ element, parts, parameters, session: await session, isCurrent: () => current === number });
    if (current === number) leave = left || (() => {});
    else if (left) left();
  } catch (error) {
    if (current === number) {
      replace(element, h("h1", {}, "This page cannot be shown"));
      tell(error.message);
    }
  }
}

function help() {
  show("Help",
    h("p", {}, h("kbd", {}, "/"), " searches · ", h("kbd", {}, "?"), " shows this help · ", h("kbd", {}, "g"), " then ",
      h("kbd", {}, "o"), ", ", h("kbd", {}, "t"), ", ", h("kbd", {}, "c"), " goes to overview, topics, groups"),
    h("h2", {}, "Search in records"),
    h("dl", {}, [
      ["word", "records with the word in key, value or headers; \"two words\" with a space"],
      ["/order-[0-9]+/", "a regular expression (RE2); /order/i ignores case"],
      ["key:abc value:abc", "only in the key, or the value; key=abc is the whole key"],
      ["header.trace:7f3", "in the header trace; header:7f3 in any header"],
      ["$.user.id=42", "a field of a JSON value; also != > >= < <= and : for a part"],
      ["is:tombstone", "records without a value"],
      ["-word", "records that do not match"],
    ].map(([text, meaning]) => [h("dt", {}, h("code", {}, text)), h("dd", {}, meaning)])),
    h("p", { class: "muted" }, "All terms must match. Searches are part of the address, so you can save and share them. ",
      h("a", { href: "/api/openapi.json" }, "The API"), " is the same for scripts."));
}

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  try { localStorage.setItem("theme", theme); } catch { /* private windows have no storage */ }
  document.getElementById("theme").textContent = `Theme: ${theme || "system"}`;
}

let pressed = "";
function key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return;
  if (event.key === "/") {
    const box = document.querySelector("[data-search]");
    if (box) { event.preventDefault(); box.focus(); box.select(); }
  } else if (event.key === "?") {
    event.preventDefault();
    help();
  } else if (pressed === "g") {
    const target = { o: "/", t: "/topics", c: "/groups" }[event.key];
    if (target) window.location.hash = target;
  }
  pressed = event.key;
}

// A login is a page of its own; then everything starts again as that user.
function logIn() {
  if (document.getElementById("login")) return;
  leave();
  leave = () => {};
  number += 1;
  const problem = h("p", { class: "bad", role: "alert" });
  const form = h("form", { id: "login", class: "panel login", onsubmit: async (event) => {
    event.preventDefault();
    replace(problem);
    try {
      await post("/api/login", Object.fromEntries(new FormData(form)));
      window.location.reload();
    } catch (error) {
      replace(problem, error.message);
    }
  } }, field("User", "user", { required: true, autocomplete: "username" }),
  field("Password", "password", { required: true, type: "password", autocomplete: "current-password" }),
  problem, h("button", { type: "submit", class: "primary" }, "Log in"));
  tell("");
  replace(document.getElementById("user"));
  replace(main, h("h1", {}, "Log in"), h("p", { class: "muted" }, "With your name and password of the cluster."), form);
  form.querySelector("input").focus();
}

function showUser(found) {
  replace(document.getElementById("cluster"), h("span", { class: "address", title: found.bootstrap }, found.bootstrap), found.read_only ? " · read-only" : "");
  replace(document.getElementById("user"), found.user ? [found.user, " "] : "", found.login === "cluster" ? h("button", {
    type: "button", onclick: async () => { await post("/api/logout", {}); window.location.reload(); },
  }, "Log out") : "");
}

const session = get("/api/session");
let saved = "";
try { saved = localStorage.getItem("theme") || ""; } catch { /* private windows have no storage */ }
setTheme(saved);
document.getElementById("theme").addEventListener("click", () => {
  const order = ["", "light", "dark"];
  setTheme(order[(order.indexOf(document.documentElement.dataset.theme || "") + 1) % 3]);
});
document.getElementById("help").addEventListener("click", help);
replace(document.getElementById("nav"), PAGES.filter(([name]) => name).map(([name, path]) => link(path, name)));
document.addEventListener("keydown", key);
window.addEventListener("hashchange", () => { if (!document.getElementById("login")) route(true); });
window.addEventListener("loggedout", logIn);
// A call that nobody waits for, as for each letter of a search, must not fail in silence.
window.addEventListener("unhandledrejection", (event) => {
  if (!(event.reason instanceof ApiError)) return;
  event.preventDefault();
  tell(event.reason.message);
});
session.then((found) => {
  if (found.login === "cluster" && !found.user) { logIn(); return; }
  showUser(found);
  route(false);
}, (error) => {
  if (error.status === 401) replace(main, h("h1", {}, "You are not logged in"), h("p", { class: "muted" }, "Open the console through its proxy, which logs you in."));
  else route(false);
  tell(error.message);
});
