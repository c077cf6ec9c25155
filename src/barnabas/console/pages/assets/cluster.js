import { h, link, part, replace, table } from "./dom.js";
import { get, patch, post } from "./api.js";
import { ask, field } from "./dialog.js";
import { count, size } from "./format.js";
import { repeat } from "./refresh.js";
import { configsTable } from "./topic.js";

const who = (entity) => entity.map((each) => `${each.type} ${each.name ?? "(default)"}`).join(", ");
const LIMITS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

// An empty limit removes a quota; an empty name leaves out that part, and "(default)" is the default entity.
const quota = (again, row) => ask({
  title: row ? `Change the quotas of ${who(row.entity)}` : "Add a quota", action: row ? "Change" : "Add",
  fields: [row ? null : h("p", { class: "muted" }, "Name a user, a client id, both, or an address. (default) is for all others."),
    row ? null : [field("User", "user"), field("Client id", "client-id"), field("Address", "ip")],
    LIMITS.map((name) => field(name, name, { type: "number", min: 0, step: "any", value: row?.values[name] ?? "" }))],
  submit: async (values) => {
    const named = row ? row.entity.map((each) => [each.type, each.name]) : ["user", "client-id", "ip"].filter((each) => values[each]).map((each) => [each, values[each] === "(default)" ? null : values[each]]);
    const changed = LIMITS.filter((name) => values[name] !== "" || row?.values[name] !== undefined).map((name) => [name, values[name] === "" ? null : Number(values[name])]);
    await patch("/api/quotas", { entity: Object.fromEntries(named), values: Object.fromEntries(changed) });
    await again();
  },
});

const cancel = (row, again) => ask({
  title: "Cancel the move", action: "Cancel the move", danger: true,
  fields: [h("p", {}, `${row.topic}-${row.partition} keeps the replicas that it had before.`)],
  submit: async () => { await post("/api/reassignments", { topic: row.topic, partition: row.partition, replicas: null }); await again(); },
});

const movesTable = (moves, session, again) => table("Replicas that are moved now", [
  { title: "Partition", cell: (row) => link(`/topics/${part(row.topic)}`, `${row.topic}-${row.partition}`) },
  { title: "Replicas", cell: (row) => row.replicas.join(", ") }, { title: "Adding", cell: (row) => row.adding.join(", ") || "–" }, { title: "Removing", cell: (row) => row.removing.join(", ") || "–" },
  { title: "Progress", cell: (row) => [h("progress", { max: row.total_bytes || 1, value: row.done_bytes, "aria-label": `Progress of ${row.topic}-${row.partition}` }), ` ${size(row.done_bytes)} of ${size(row.total_bytes)}`] },
  { title: "Change", cell: (row) => (session.read_only ? "–" : h("button", { type: "button", "aria-label": `Cancel the move of ${row.topic}-${row.partition}`, onclick: () => cancel(row, again) }, "Cancel")) },
], moves, "No replicas are moved now.");

const quotasTable = (quotas, session, again) => (quotas.problem ? h("p", { class: "warn" }, quotas.problem) : table("Quotas of users, clients and addresses", [
  { title: "Who", cell: (row) => who(row.entity) },
  { title: "Limits", cell: (row) => Object.entries(row.values).map(([name, value]) => `${name}=${value}`).join(", ") },
  { title: "Change", cell: (row) => (session.read_only ? "–" : h("button", { type: "button", "aria-label": `Change the quotas of ${who(row.entity)}`, onclick: () => quota(again, row) }, "Change")) },
], quotas.quotas, "There are no quotas."));

export async function clusterPage({ element, session, isCurrent }) {
  const moving = h("div", {}), limits = h("div", {});
  const updateMoves = async () => {
    const { moves } = await get("/api/reassignments");
    if (isCurrent()) replace(moving, movesTable(moves, session, updateMoves));
  };
  const updateQuotas = async () => {
    const quotas = await get("/api/quotas").catch((error) => ({ quotas: [], problem: error.message }));
    if (isCurrent()) replace(limits, quotasTable(quotas, session, updateQuotas));
  };
  const [dirs, overview] = await Promise.all([get("/api/log-dirs"), get("/api/overview"), updateMoves(), updateQuotas()]);
  if (!isCurrent()) return;
  const settings = h("div", {});
  const choose = h("select", { "aria-label": "Broker", onchange: (event) => (event.target.value ? configsTable({ element: settings, kind: "broker", name: event.target.value, session, isCurrent }) : replace(settings)) },
    h("option", { value: "" }, "choose a broker"), overview.brokers.map((each) => h("option", { value: each.id }, `${each.id} (${each.host}:${each.port})`)));
  replace(element, h("h1", {}, "Cluster"),
    h("h2", {}, "Log directories"),
    table("Directories of all brokers", [
      { title: "Broker", cell: (row) => row.broker_id, number: true },
      { title: "Directory", cell: (row) => [h("code", {}, row.path), row.error ? h("div", { class: "bad" }, row.error) : ""], class: "wrap" },
      { title: "Replicas", cell: (row) => count(row.replica_count), number: true },
      { title: "Logs", cell: (row) => size(row.bytes), number: true },
      { title: "Disk free", cell: (row) => (row.total_bytes ? `${size(row.usable_bytes)} of ${size(row.total_bytes)}` : "–"), number: true },
      { title: "Largest", cell: (row) => row.largest.slice(0, 5).map((each, index) => [index ? ", " : "", link(`/topics/${part(each.topic)}`, `${each.topic}-${each.partition}`), ` ${size(each.bytes)}`]), class: "long" },
    ], dirs.directories),
    h("h2", {}, "Reassignments"),
    moving,
    h("h2", {}, "Quotas"), limits,
    session.read_only ? null : h("div", { class: "bar" }, h("button", { type: "button", onclick: () => quota(updateQuotas) }, "Add quota")),
    h("h2", {}, "Settings of brokers"), h("div", { class: "bar" }, h("label", {}, "Broker", choose)), settings);
  return repeat(updateMoves);
}
