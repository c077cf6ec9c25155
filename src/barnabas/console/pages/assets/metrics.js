import { h, link, part, replace } from "./dom.js";
import { get, query } from "./api.js";
import { count, rate, size } from "./format.js";
import { plot } from "./plot.js";
import { repeat } from "./refresh.js";

const SHOWN = 6;
const whole = (value) => count(Math.round(value));
const ms = (value) => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const bytes = (value) => `${size(Math.round(value))}/s`;
// What any Kafka tells its admin clients, and what brokers serve for Prometheus.
const CLUSTER = [["records_per_second", "Records in", rate], ["growth_per_second", "Growth of logs", bytes], ["lag", "Lag of all groups", whole],
  ["request_ms", "Console's health request", ms]];
const BROKERS = [["bytes_in_per_second", "Bytes in", bytes], ["bytes_out_per_second", "Bytes out", bytes], ["requests_per_second", "Requests", rate],
  ["produce_p99_ms", "Produce, 99th perc.", ms], ["fetch_p99_ms", "Fetch with wait, 99th perc.", ms]];

export async function metricsPage({ element, isCurrent }) {
  const update = async () => {
    const [{ topics }, { groups }] = await Promise.all([get(`/api/topics${query({ sort: "rate", descending: true, size: SHOWN })}`), get("/api/groups")]);
    const behind = groups.filter((each) => each.lag !== null).sort((one, other) => other.lag - one.lag).slice(0, SHOWN);
    const names = [...CLUSTER, ...BROKERS].map(([name]) => name);
    const wanted = [...names, ...topics.map((each) => `topic:${each.name}`)];
    const [past, lags] = await Promise.all([get(`/api/history${query({ series: wanted.join("\n") })}`),
      behind.length ? get(`/api/history${query({ series: behind.map((each) => `group:${each.group_id}`).join("\n") })}`) : { times_ms: [], series: {} }]);
    if (!isCurrent()) return;
    const draw = ([name, title, unit]) => plot(title, past.times_ms, past.series[name], unit);
    replace(element, h("h1", {}, "Metrics"),
      h("h2", {}, "Cluster"), h("div", { class: "plots" }, CLUSTER.map(draw)),
      h("h2", {}, "Brokers"),
      BROKERS.some(([name]) => past.series[name]) ? h("div", { class: "plots" }, BROKERS.map(draw))
        : h("p", { class: "muted" }, "Bytes in and out and the times of requests come from the metrics of brokers: start the console with --metrics URL."),
      h("h2", {}, "Busiest topics"),
      topics.length ? h("div", { class: "plots" }, topics.map((each) => plot(link(`/topics/${part(each.name)}`, each.name), past.times_ms, past.series[`topic:${each.name}`], rate))) : h("p", { class: "muted" }, "There are no topics yet."),
      h("h2", {}, "Groups with the largest lag"),
      behind.length ? h("div", { class: "plots" }, behind.map((each) => plot(link(`/groups/${part(each.group_id)}`, each.group_id), lags.times_ms, lags.series[`group:${each.group_id}`], whole))) : h("p", { class: "muted" }, "There are no groups yet."));
  };
  await update();
  return repeat(update);
}
