import { announcer, h, link, part, replace, table } from "./dom.js";
import { get, post, query } from "./api.js";
import { count, counted, duration, rate, size } from "./format.js";
import { ask, field } from "./dialog.js";
import { repeat } from "./refresh.js";

const SIZE = 50;

// How long records stay, from the settings of the topic.
function kept(row) {
  if (row.cleanup_policy === null) return "–";
  const parts = [];
  if (row.cleanup_policy.includes("compact")) parts.push("compacted");
  if (row.cleanup_policy.includes("delete")) {
    parts.push(row.retention_ms < 0 ? "forever" : duration(row.retention_ms));
    if (row.retention_bytes >= 0) parts.push(`${size(row.retention_bytes)} per partition`);
  }
  return parts.join(", ");
}

export async function topicsPage({ element, parameters, session, isCurrent }) {
  const state = {
    search: parameters.get("search") || "", page: Number(parameters.get("page") || 0), sort: parameters.get("sort") || "name",
    descending: parameters.get("descending") === "1", internal: parameters.get("internal") === "1",
  };
  const list = h("div", {}), told = announcer();
  let asked = 0;
  const update = async () => {
    const current = (asked += 1);
    const found = await get(`/api/topics${query({ ...state, size: SIZE })}`);
    if (!isCurrent() || current !== asked) return;
    const pages = Math.max(1, Math.ceil(found.total / SIZE));
    const column = (title, name, cell, kind) => ({
      title, cell, number: !kind, class: kind,
      mark: state.sort === name ? (state.descending ? " ↓" : " ↑") : "",
      ariaSort: state.sort === name ? (state.descending ? "descending" : "ascending") : null,
      onsort: () => { state.descending = state.sort === name ? !state.descending : name !== "name"; state.sort = name; state.page = 0; remember(); },
    });
    const topics = counted(found.total, "topic");
    told.say(topics);
    replace(list,
      table(topics, [
        column("Topic", "name", (row) => [link(`/topics/${part(row.name)}`, row.name), row.is_internal ? [" ", h("span", { class: "tag" }, "internal")] : "", row.is_healthy ? "" : [" ", h("span", { class: "tag bad" }, "not all replicas")]], "wrap"),
        column("Partitions", "partitions", (row) => `${row.partitions} × ${row.replication_factor}`),
        column("Records", "records", (row) => count(row.records)),
        column("Size", "bytes", (row) => size(row.bytes)),
        column("Records in", "rate", (row) => rate(row.rate)),
        column("Lag", "lag", (row) => count(row.lag)),
        { title: "Kept", cell: kept },
        { title: "Messages", cell: (row) => link(`/topics/${part(row.name)}/messages`, "show", { "aria-label": `Messages of ${row.name}` }) },
      ], found.topics, state.search ? `No topic has ${state.search} in its name.` : "There are no topics yet."),
      pages > 1 ? h("div", { class: "bar" },
        h("button", { type: "button", disabled: state.page === 0, onclick: () => { state.page -= 1; remember(); } }, "Previous"),
        h("span", { class: "muted" }, `Page ${state.page + 1} of ${pages}`),
        h("button", { type: "button", disabled: state.page + 1 >= pages, onclick: () => { state.page += 1; remember(); } }, "Next")) : null);
  };
  const remember = () => {
    history.replaceState(null, "", `#/topics${query({ ...state, page: state.page || "", sort: state.sort === "name" ? "" : state.sort })}`);
    update();
  };
  const create = () => ask({
    title: "Create a topic", action: "Create",
    fields: [field("Name", "name", { required: true, pattern: "[a-zA-Z0-9._\\-]{1,249}" }),
      field("Partitions (empty: the broker's default)", "partitions", { type: "number", min: 1 }),
      field("Replicas (empty: the broker's default)", "replication", { type: "number", min: 1 }),
      field("Settings, one a line, such as retention.ms=86400000", "configs", { rows: 4 })],
    submit: async (values) => {
      const configs = Object.fromEntries(values.configs.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1).trim()]));
      const body = { name: values.name, configs };
      if (values.partitions) body.partitions = Number(values.partitions);
      if (values.replication) body.replication_factor = Number(values.replication);
      await post("/api/topics", body);
      await update();
    },
  });
  replace(element,
    h("h1", {}, "Topics"),
    h("div", { class: "bar" },
      h("label", { class: "grow" }, "Find a topic", h("input", { type: "search", value: state.search, "data-search": true, oninput: (event) => { state.search = event.target.value; state.page = 0; remember(); } })),
      h("label", { class: "inline" }, h("input", { type: "checkbox", checked: state.internal, onchange: (event) => { state.internal = event.target.checked; state.page = 0; remember(); } }), "internal topics"),
      session.read_only ? null : h("button", { type: "button", class: "primary", onclick: create }, "Create topic")),
    told.element, list);
  await update();
  return repeat(update);
}
