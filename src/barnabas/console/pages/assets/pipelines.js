import { card, h, link, part, replace, svg, table } from "./dom.js";
import { get } from "./api.js";
import { count, counted, rate, size, time } from "./format.js";
import { plot } from "./plot.js";
import { repeat } from "./refresh.js";

const KINDS = { running: "good", failed: "bad", invalid: "bad" };
const phase = (row) => h("span", { class: KINDS[row.state] || "muted" }, row.state);
const state = (row) => `${count(row.state_rows)}${row.state_bytes ? ` (${size(row.state_bytes)})` : ""}`;
const ms = (value) => (value === null || value === undefined ? "–" : `${count(value)} ms`);

export async function pipelinesPage({ element, isCurrent }) {
  const update = async () => {
    const { pipelines } = await get("/api/pipelines");
    if (!isCurrent()) return;
    replace(element, h("h1", {}, "Pipelines"), table(counted(pipelines.length, "pipeline"), [
      { title: "Pipeline", cell: (row) => (row.state === "invalid" ? row.name : link(`/pipelines/${part(row.name)}`, row.name)), class: "wrap" },
      { title: "Phase", cell: phase },
      { title: "Rows", cell: (row) => (row.rows_per_second === null || row.rows_per_second === undefined ? "–" : rate(row.rows_per_second)), number: true },
      { title: "Batch time", cell: (row) => ms(row.batch_ms), number: true },
      { title: "Lag", cell: (row) => count(row.lag), number: true },
      { title: "State", cell: state, number: true },
      { title: "Last error", cell: (row) => h("span", { class: "bad" }, row.error || ""), class: "long" },
      { title: "File", cell: (row) => h("code", {}, row.file), class: "wrap" },
    ], pipelines, "No pipelines. Start the console with --pipeline FILE to see them here."));
  };
  await update();
  return repeat(update);
}

// Columns from left to right: what a node needs is to the left of it.
function columns(graph) {
  const depth = Object.fromEntries(graph.nodes.map((each) => [each.name, 0]));
  for (let round = 0; round < graph.nodes.length; round += 1) {
    for (const edge of graph.edges) depth[edge.to] = Math.max(depth[edge.to], depth[edge.from] + 1);
  }
  return depth;
}

function drawing(graph) {
  const depth = columns(graph);
  const width = 210, height = 74, gapX = 50, gapY = 16;
  const filled = {};
  const place = {};
  for (const node of graph.nodes) {
    const column = depth[node.name];
    filled[column] = (filled[column] || 0) + 1;
    place[node.name] = { x: column * (width + gapX), y: (filled[column] - 1) * (height + gapY) };
  }
  const fullWidth = Math.max(...Object.values(place).map((each) => each.x)) + width;
  const fullHeight = Math.max(...Object.values(place).map((each) => each.y)) + height;
  const short = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);
  const words = (x, y, text, kind) => { const found = svg("text", { x, y, class: kind }); found.textContent = text; return found; };
  const edges = graph.edges.map((edge) => {
    const from = place[edge.from], to = place[edge.to];
    const x1 = from.x + width, y1 = from.y + height / 2, x2 = to.x, y2 = to.y + height / 2;
    return svg("path", { class: "edge", d: `M${x1} ${y1} C${x1 + gapX / 2} ${y1} ${x2 - gapX / 2} ${y2} ${x2} ${y2}` });
  });
  const nodes = graph.nodes.map((node) => {
    const { x, y } = place[node.name];
    return svg("g", { class: `node ${node.kind}` }, svg("rect", { x, y, width, height, rx: 8 }),
      words(x + 10, y + 20, node.kind, "kind"), words(x + 10, y + 40, short(node.name, 26), "name"), words(x + 10, y + 60, short(node.text, 31), "text"));
  });
  return h("div", { class: "scroll graph", tabindex: "0", role: "region", "aria-label": "Graph of the pipeline" },
    svg("svg", { viewBox: `-1 -1 ${fullWidth + 2} ${fullHeight + 2}`, width: fullWidth + 2, height: fullHeight + 2, role: "img", "aria-label": graph.edges.map((each) => `${each.from} to ${each.to}`).join(", ") }, ...edges, ...nodes));
}

export async function pipelinePage({ element, parts, isCurrent }) {
  const update = async () => {
    const found = await get(`/api/pipelines/${part(parts[0])}`);
    if (!isCurrent()) return;
    const batches = found.batches[found.query] || [];
    const times = batches.map((each) => Date.parse(each.timestamp));
    const series = (name) => batches.map((each) => each[name]);
    replace(element, h("h1", {}, found.name),
      found.error ? h("p", { class: "alert", role: "alert" }, found.error) : null,
      found.problem ? h("p", { class: "warn" }, found.problem) : null,
      h("div", { class: "cards" }, card("State", found.state, KINDS[found.state], true), card("Rows", found.rows_per_second === null ? "–" : rate(found.rows_per_second)), card("Batch time", ms(found.batch_ms)),
        card("Lag", count(found.total_lag ?? found.lag)), card("Rows kept as state", state(found)), card("Rows of this run", count(found.rows))),
      h("h2", {}, "Graph"), drawing(found.graph),
      h("ul", { class: "muted" }, found.graph.nodes.map((node) => h("li", {}, `${node.kind === node.name.split(" ")[0] ? "" : `${{ letters: "" }[node.kind] ?? node.kind} `}${node.name}: ${node.text} `, node.topics.map((topic) => [link(`/topics/${part(topic)}`, topic), " "])))),
      found.letters_topic ? h("p", {}, link(`/topics/${part(found.letters_topic)}/messages`, "Dead letters"), ": look at them, and send them back when the cause is gone.") : null,
      h("div", { class: "plots" }, plot("Rows", times, series("rows_per_second"), rate), plot("Batch time", times, series("batch_ms"), (value) => `${Math.round(value)} ms`), plot("Lag", times, series("lag"), (value) => count(Math.round(value)))),
      h("h2", {}, "Queries"),
      table("Queries and their checkpoints", [
        { title: "Query", cell: (row) => row.query, class: "wrap" },
        { title: "Done", cell: (row) => (row.query_id === null ? row.told : row.committed_batch_id === null ? "no batch" : `batch ${row.committed_batch_id}`), class: "short" },
        { title: "Planned", cell: (row) => (row.planned_batch_id === undefined || row.planned_batch_id === null ? "–" : `batch ${row.planned_batch_id}`) },
        { title: "Began", cell: (row) => time(row.planned_at_ms) },
        { title: "Watermark", cell: (row) => time(row.watermark_ms) },
      ], found.queries, "The checkpoint cannot be read."),
      h("h2", {}, "Lag"),
      table("Partitions that the pipeline reads", [
        ...(found.groups.length > 1 ? [{ title: "Group", cell: (row) => link(`/groups/${part(row.group)}`, row.group) }] : []),
        { title: "Source", cell: (row) => row.source },
        { title: "Topic", cell: (row) => link(`/topics/${part(row.topic)}`, row.topic) },
        { title: "Partition", cell: (row) => row.partition, number: true },
        { title: "Committed", cell: (row) => count(row.committed_offset), number: true },
        { title: "End", cell: (row) => count(row.end_offset), number: true },
        { title: "Lag", cell: (row) => count(row.lag), number: true },
      ], found.partitions, "No topics are read as streams."),
      h("dl", {}, [["File", found.file], ["Checkpoint", found.checkpoint], ["Trigger", found.trigger], ["Guarantee", found.guarantee || "–"], ["Last written", time(found.updated_ms)]].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
  };
  await update();
  return repeat(update);
}
