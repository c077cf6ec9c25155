import { card, h, link, part, replace, table } from "./dom.js";
import { get, patch, post, query, remove } from "./api.js";
import { count, counted, dotted, rate, size, time } from "./format.js";
import { ask, confirmName, field } from "./dialog.js";
import { messagesTab } from "./messages.js";
import { plot } from "./plot.js";
import { repeat } from "./refresh.js";

const TABS = [["", "Partitions"], ["messages", "Messages"], ["settings", "Settings"], ["consumers", "Consumers"], ["producers", "Producers"]];

export async function topicPage(context) {
  const { element, parts, session } = context;
  const [name, tab = ""] = parts;
  const topic = await get(`/api/topics/${part(name)}`);
  const content = h("div", {});
  const actions = session.read_only || topic.is_internal ? null : h("div", { class: "bar" },
    h("button", { type: "button", onclick: () => morePartitions(topic) }, "Add partitions"),
    h("button", { type: "button", class: "danger", onclick: () => deleteTopic(name) }, "Delete topic"));
  replace(element,
    h("h1", {}, name, topic.is_internal ? [" ", h("span", { class: "tag" }, "internal")] : ""),
    h("nav", { class: "tabs", "aria-label": "Topic" }, TABS.map(([path, title]) =>
      link(`/topics/${part(name)}${path ? `/${path}` : ""}`, title, { "aria-current": path === tab ? "page" : null }))),
    content);
  const shown = { "": partitionsTab, messages: messagesTab, settings: settingsTab, consumers: consumersTab, producers: producersTab }[tab];
  if (!shown) throw new Error("A topic has no such page.");
  return shown({ ...context, element: content, topic, actions });
}

async function partitionsTab({ element, topic: first, actions, session, isCurrent }) {
  const update = async (known) => {
    const [topic, past] = await Promise.all([known || get(`/api/topics/${part(first.name)}`), get(`/api/history${query({ series: `topic:${first.name}` })}`)]);
    if (!isCurrent()) return;
    const records = topic.partitions.reduce((sum, each) => sum + (each.end_offset === null ? 0 : each.end_offset - each.first_offset), 0);
    replace(element, actions,
      h("div", { class: "cards" },
        card("Partitions", count(topic.partition_count)), card("Offsets in use", count(records)), card("Records in", rate(topic.rate))),
      h("div", { class: "plots" }, plot("Records in", past.times_ms, past.series[`topic:${topic.name}`], rate)),
      table(`Partitions of topic id ${topic.topic_id || "–"}`, [
        { title: "Partition", cell: (row) => link(`/topics/${part(topic.name)}/messages?partition=${row.partition}`, row.partition, { "aria-label": `Messages of partition ${row.partition}` }), number: true },
        { title: "Leader", cell: (row) => (row.leader === null ? h("span", { class: "bad" }, "none") : `${row.leader} (epoch ${row.leader_epoch ?? "–"})`), class: "short" },
        { title: "Replicas", cell: (row) => row.replicas.join(", ") },
        { title: "In sync", cell: (row) => h("span", { class: row.isr.length < row.replicas.length ? "bad" : "" }, row.isr.join(", ")) },
        { title: "First offset", cell: (row) => count(row.first_offset), number: true },
        { title: "End offset", cell: (row) => count(row.end_offset), number: true },
        { title: "Size", cell: (row) => size(row.bytes), number: true },
        { title: "Change", cell: (row) => (session.read_only ? "–" : h("button", { type: "button", "aria-label": `Move the replicas of partition ${row.partition}`, onclick: () => moveReplicas(topic, row) }, "Move")) },
      ], topic.partitions));
  };
  await update(first);
  return repeat(update);
}

async function settingsTab({ element, topic, session, isCurrent }) {
  await configsTable({ element, kind: "topic", name: topic.name, session, isCurrent });
}

export async function configsTable({ element, kind, name, session, isCurrent, wanted = "" }) {
  const path = `/api/configs/${kind}/${part(name)}`;
  const { configs } = await get(path);
  if (!isCurrent()) return;
  const again = () => configsTable({ element, kind, name, session, isCurrent, wanted });
  const change = (row) => ask({
    title: `Change ${row.name}`, action: "Change",
    fields: [h("p", { class: "muted" }, row.documentation || ""), h("p", {}, `Now: ${row.value ?? "null"}. Default: ${row.default ?? "–"}.`), field("New value", "value", { value: row.value ?? "" })],
    submit: async (values) => { await patch(path, { configs: { [row.name]: values.value } }); await again(); },
  });
  const reset = (row) => ask({
    title: `Reset ${row.name}`, action: "Reset",
    fields: [h("p", {}, `${row.name} changes from ${row.value} to its default${row.default === null ? "" : `, ${row.default}`}.`)],
    submit: async () => { await patch(path, { configs: { [row.name]: null } }); await again(); },
  });
  const list = h("div", {});
  const draw = () => replace(list, table(`Settings of ${kind} ${name}`, [
    { title: "Setting", cell: (row) => [h("code", {}, dotted(row.name))], class: "wrap" },
    { title: "Value", cell: (row) => h("span", { class: row.is_default ? "" : "changed" }, row.is_sensitive ? "hidden" : row.value ?? "null"), class: "wrap" },
    { title: "Default", cell: (row) => (row.default === null ? "–" : dotted(row.default)), class: "wrap" },
    { title: "Source", cell: (row) => row.source.toLowerCase().replaceAll("_", " ") },
    { title: "Help", cell: (row) => row.documentation || "–", class: "long" },
    { title: "Change", cell: (row) => (session.read_only || row.is_read_only ? "–" : [h("button", { type: "button", onclick: () => change(row), "aria-label": `Change ${row.name}` }, "Change"), row.source.startsWith("DYNAMIC") ? [" ", h("button", { type: "button", onclick: () => reset(row), "aria-label": `Reset ${row.name}` }, "Reset")] : ""]) },
  ], configs.filter((row) => row.name.includes(wanted)), "No setting has this name."));
  replace(element, h("div", { class: "bar" }, h("label", { class: "grow" }, "Find a setting", h("input", { type: "search", value: wanted, "data-search": true, oninput: (event) => { wanted = event.target.value; draw(); } }))), list);
  draw();
}

async function consumersTab({ element, topic, isCurrent }) {
  const draw = (found) => replace(element, table("Groups that have committed offsets of this topic", [
    { title: "Group", cell: (row) => link(`/groups/${part(row.group_id)}`, row.group_id) },
    { title: "State", cell: (row) => row.state || "–" },
    { title: "Partitions", cell: (row) => count(row.partitions), number: true },
    { title: "Lag", cell: (row) => count(row.lag), number: true },
  ], found.groups, "No group has committed offsets of this topic."));
  draw(topic);
  return repeat(async () => {
    const found = await get(`/api/topics/${part(topic.name)}`);
    if (isCurrent()) draw(found);
  });
}

async function producersTab({ element, topic, session, isCurrent }) {
  const path = `/api/topics/${part(topic.name)}`;
  const found = await get(`${path}/producers`);
  if (!isCurrent()) return;
  const abort = (row) => ask({
    title: "Abort a hanging transaction", action: "Abort", danger: true,
    fields: [h("p", {}, `The transaction of producer ${row.producer_id} on partition ${row.partition}, from offset ${row.transaction_start_offset} on, is aborted. Consumers of committed records continue after it.`)],
    submit: async () => { await post(`${path}/abort-transaction`, { partition: row.partition, start_offset: row.transaction_start_offset }); await producersTab({ element, topic, session, isCurrent }); },
  });
  replace(element, table(counted(found.total, "idempotent or transactional producer"), [
    { title: "Partition", cell: (row) => row.partition, number: true },
    { title: "Producer id", cell: (row) => row.producer_id, number: true },
    { title: "Epoch", cell: (row) => row.producer_epoch, number: true },
    { title: "Last sequence", cell: (row) => count(row.last_sequence), number: true },
    { title: "Last record", cell: (row) => time(row.last_timestamp_ms) },
    { title: "Open transaction", cell: (row) => (row.transaction_start_offset === null ? "–" : `from offset ${row.transaction_start_offset}`) },
    { title: "Hanging", cell: (row) => (row.is_hanging ? (session.read_only ? h("span", { class: "bad" }, "yes") : h("button", { type: "button", class: "danger", onclick: () => abort(row) }, "Abort")) : "–") },
  ], found.producers, "No idempotent producer has written here recently."));
}

const moveReplicas = (topic, row) => ask({
  title: `Move the replicas of partition ${row.partition}`, action: "Move",
  fields: [h("p", {}, `Now: ${row.replicas.join(", ")}. Records are copied to new replicas first; the Cluster page shows the progress.`), field("Broker ids, the preferred leader first", "replicas", { required: true, value: row.replicas.join(", "), pattern: "[0-9, ]+" })],
  submit: async (values) => {
    await post("/api/reassignments", { topic: topic.name, partition: row.partition, replicas: values.replicas.split(/[ ,]+/).filter(Boolean).map(Number) });
    window.dispatchEvent(new HashChangeEvent("hashchange"));
  },
});

const morePartitions = (topic) => ask({
  title: "Add partitions", action: "Add",
  fields: [h("p", {}, "Records with the same key may go to another partition afterwards. Partitions cannot be removed."), field("New number of partitions", "count", { type: "number", required: true, min: topic.partition_count + 1, value: topic.partition_count + 1 })],
  submit: async (values) => { await post(`/api/topics/${part(topic.name)}/partitions`, { count: Number(values.count) }); window.dispatchEvent(new HashChangeEvent("hashchange")); },
});

const deleteTopic = (name) => confirmName("Delete the topic", name, "All its records are deleted. This cannot be undone.", async () => {
  await remove(`/api/topics/${part(name)}`, { confirm: name });
  window.location.hash = "/topics";
});
