import { card, h, link, part, replace, table } from "./dom.js";
import { get, query } from "./api.js";
import { count, counted, rate, size, time } from "./format.js";
import { plot } from "./plot.js";
import { repeat } from "./refresh.js";

export async function overviewPage({ element, isCurrent }) {
  const update = async () => {
    const [now, past] = await Promise.all([
      get("/api/overview"),
      get(`/api/history${query({ series: "records_per_second\nlag\nrequest_ms\nbytes" })}`),
    ]);
    if (!isCurrent()) return;
    const healthy = now.offline === 0 && now.under_replicated === 0;
    replace(element,
      h("h1", {}, "Overview"),
      h("div", { class: "cards" },
        card("Health", healthy ? "Healthy" : "Problems", healthy ? "good" : "bad", true),
        card("Brokers", count(now.brokers.length)), card("Topics", count(now.topics)),
        card("Partitions", count(now.partitions)), card("Groups", count(now.groups)),
        card("Records in", rate(now.records_per_second)), card("On disk", size(now.bytes)),
        card("Offline", count(now.offline), now.offline ? "bad" : ""),
        card("Under-replicated", count(now.under_replicated), now.under_replicated ? "bad" : "")),
      h("div", { class: "plots" },
        plot("Records in", past.times_ms, past.series.records_per_second, rate),
        plot("Lag of all groups", past.times_ms, past.series.lag, (value) => count(Math.round(value))),
        plot("On disk", past.times_ms, past.series.bytes, (value) => size(value)),
        plot("Console's health request", past.times_ms, past.series.request_ms, (value) => `${value.toFixed(1)} ms`)),
      now.problems.length ? [h("h2", {}, "Partitions with problems"), table(counted(now.problems.length, "partition"), [
        { title: "Topic", cell: (row) => link(`/topics/${part(row.topic)}`, row.topic) },
        { title: "Partition", cell: (row) => row.partition, number: true },
        { title: "Leader", cell: (row) => (row.leader === null ? h("span", { class: "bad" }, "none") : row.leader), number: true },
        { title: "Replicas", cell: (row) => row.replicas.join(", ") },
        { title: "In sync", cell: (row) => row.isr.join(", ") },
      ], now.problems)] : null,
      h("h2", {}, "Brokers"),
      table(`Cluster ${now.cluster_id || "without an id"}, at ${time(now.time_ms)}`, [
        { title: "Broker", cell: (row) => [String(row.id), row.is_controller ? [" ", h("span", { class: "tag" }, "controller")] : "", row.is_fenced ? [" ", h("span", { class: "tag bad" }, "fenced")] : ""] },
        { title: "Address", cell: (row) => `${row.host}:${row.port}` },
        { title: "Rack", cell: (row) => row.rack || "–" },
        { title: "Leaders", cell: (row) => count(row.leaders), number: true },
        { title: "Replicas", cell: (row) => count(row.replicas), number: true },
        { title: "Logs", cell: (row) => size(row.bytes), number: true },
        { title: "Disk free", cell: (row) => (row.disk_total_bytes ? `${size(row.disk_usable_bytes)} of ${size(row.disk_total_bytes)}` : "–"), number: true },
      ], now.brokers),
      now.gaps.length ? h("p", { class: "warn" }, `Not known: ${now.gaps.join("; ")}`) : null);
  };
  await update();
  return repeat(update);
}
