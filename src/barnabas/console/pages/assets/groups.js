import { announcer, card, h, link, part, replace, table } from "./dom.js";
import { get, post, query, remove } from "./api.js";
import { count, counted } from "./format.js";
import { ask, confirmName, field } from "./dialog.js";
import { plot } from "./plot.js";
import { repeat } from "./refresh.js";

// The partitions with the largest lag have plots of their own.
const PLOTS_MAX = 5;

export async function groupsPage({ element, parameters, isCurrent }) {
  let search = parameters.get("search") || "";
  const list = h("div", {}), told = announcer();
  let asked = 0;
  const update = async () => {
    const current = (asked += 1);
    const found = await get(`/api/groups${query({ search })}`);
    if (!isCurrent() || current !== asked) return;
    const groups = counted(found.total, "group");
    told.say(groups);
    replace(list, table(groups, [
      { title: "Group", cell: (row) => link(`/groups/${part(row.group_id)}`, row.group_id), class: "wrap" },
      { title: "State", cell: (row) => row.state || "–" },
      { title: "Type", cell: (row) => row.type || "–" },
      { title: "Topics", cell: (row) => count(row.topics), number: true },
      { title: "Lag", cell: (row) => count(row.lag), number: true },
    ], found.groups, search ? `No group has ${search} in its name.` : "There are no groups yet."));
  };
  replace(element, h("h1", {}, "Consumer groups"),
    h("div", { class: "bar" }, h("label", { class: "grow" }, "Find a group", h("input", {
      type: "search", value: search, "data-search": true,
      oninput: (event) => { search = event.target.value; history.replaceState(null, "", `#/groups${query({ search })}`); update(); } }))),
    told.element, list);
  await update();
  return repeat(update);
}

export async function groupPage({ element, parts, session, isCurrent }) {
  const [name] = parts;
  const path = `/api/groups/${part(name)}`;
  const update = async () => {
    const group = await get(path);
    const behind = [...group.partitions].sort((one, other) => (other.lag || 0) - (one.lag || 0)).slice(0, PLOTS_MAX);
    const series = [`group:${name}`, ...behind.map((each) => `lag:${name}:${each.topic}-${each.partition}`)];
    const past = await get(`/api/history${query({ series: series.join("\n") })}`);
    if (!isCurrent()) return;
    const lag = (title, key) => plot(title, past.times_ms, past.series[key], (value) => count(Math.round(value)));
    replace(element,
      h("h1", {}, name),
      h("div", { class: "cards" },
        [["State", group.state], ["Type", group.type], ["Members", count(group.members.length)], ["Lag", count(group.lag)], ["Coordinator", group.coordinator]]
          .map(([label, value]) => card(label, value))),
      session.read_only ? null : h("div", { class: "bar" },
        h("button", { type: "button", onclick: () => reset(name, path, group, update) }, "Reset offsets"),
        h("button", { type: "button", class: "danger", onclick: () => confirmName("Delete the group", name, "Its committed offsets are deleted. A group with members cannot be deleted.", async () => { await remove(path, { confirm: name }); window.location.hash = "/groups"; }) }, "Delete group")),
      h("div", { class: "plots" }, lag("Lag", series[0]), behind.length > 1 ? behind.map((each, index) => lag(`Lag of ${each.topic}-${each.partition}`, series[index + 1])) : null),
      h("h2", {}, "Lag"),
      table("Partitions that the group reads", [
        { title: "Topic", cell: (row) => link(`/topics/${part(row.topic)}`, row.topic) },
        { title: "Partition", cell: (row) => row.partition, number: true },
        { title: "Committed", cell: (row) => count(row.committed_offset), number: true },
        { title: "End", cell: (row) => count(row.end_offset), number: true },
        { title: "Lag", cell: (row) => count(row.lag), number: true },
        { title: "Next record", cell: (row) => (row.committed_offset === null || row.lag === 0 ? "–" : link(`/topics/${part(row.topic)}/messages?from=offset&offset=${row.committed_offset}&partition=${row.partition}`, "show", { "aria-label": `Next record of ${row.topic} ${row.partition}` })) },
        { title: "Member", cell: (row) => row.member_id || "–", class: "long" },
      ], group.partitions, "The group has committed nothing."),
      h("h2", {}, "Members"),
      table("Members of the group", [
        { title: "Member", cell: (row) => row.member_id, class: "long" },
        { title: "Instance", cell: (row) => row.instance_id || "–" },
        { title: "Client", cell: (row) => row.client_id, class: "short" },
        { title: "Host", cell: (row) => row.host },
        { title: "Partitions", cell: (row) => `${row.partition_count}: ${row.partitions.join(", ")}`, class: "long" },
      ], group.members, "The group has no members now."));
  };
  await update();
  return repeat(update);
}

function reset(name, path, group, update) {
  const preview = h("div", { "aria-live": "polite" });
  let previewed = "";
  const topics = [...new Set(group.partitions.map((each) => each.topic))];
  const place = h("select", { name: "to" }, [["earliest", "the first record"], ["latest", "the end"], ["time", "a time"], ["offset", "an offset"], ["shift", "forward or back by a number"]].map(([value, text]) => h("option", { value }, text)));
  return ask({
    title: `Reset offsets of ${name}`, action: "Preview, then apply",
    fields: [
      h("label", {}, "Topic", h("select", { name: "topic" }, h("option", { value: "" }, "all topics of the group"), topics.map((each) => h("option", { value: each }, each)))),
      h("label", {}, "Move to", place),
      field("Offset, number (may be negative), or time such as 2026-01-31T12:00", "value"),
      preview],
    submit: async (values) => {
      const body = { to: values.to };
      if (values.topic) body.topic = values.topic;
      if (values.to === "time") body.value = new Date(values.value).getTime();
      else if (values.to === "offset" || values.to === "shift") body.value = Number(values.value);
      if (body.value !== undefined && !Number.isFinite(body.value)) throw new Error("The value is not a number or a time.");
      const wanted = JSON.stringify(body);
      const execute = previewed === wanted;
      const result = await post(`${path}/reset`, { ...body, execute });
      if (execute) { await update(); return true; }
      previewed = wanted;
      replace(preview, h("p", {}, "Nothing has changed yet. Press the button again to set these offsets."), table("New offsets", [
        { title: "Topic", cell: (row) => row.topic }, { title: "Partition", cell: (row) => row.partition, number: true },
        { title: "Committed", cell: (row) => count(row.committed_offset), number: true }, { title: "New", cell: (row) => count(row.new_offset), number: true },
      ], result.offsets));
      return false;
    },
  });
}
