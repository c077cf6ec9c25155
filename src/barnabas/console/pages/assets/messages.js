import { add, h, part, replace } from "./dom.js";
import { get, post, query, stream } from "./api.js";
import { bytesOf, count, preview, shown, size, time } from "./format.js";
import { ask, field } from "./dialog.js";

const ROWS_MAX = 1000;
const TAIL_ROWS_MAX = 200;
const FORMATS = [["auto", "automatic"], ["text", "text"], ["json", "JSON"], ["hex", "hex"]];
const PLACES = [["newest", "newest"], ["oldest", "oldest"], ["offset", "an offset"], ["time", "a time"], ["tail", "live tail"]];

const hits = (number) => `${count(number)} ${number === 1 ? "hit" : "hits"}`;
const options = (pairs, chosen) => pairs.map(([value, text]) => h("option", { value, selected: value === chosen }, text));

// The state of the page is its address: q, from, offset, time, until, partition, committed, limit, format.
export async function messagesTab({ element, topic, parameters, session, isCurrent }) {
  const base = `/api/topics/${part(topic.name)}`;
  const read = (name, fallback = "") => parameters.get(name) || fallback;
  const input = (name, attributes) => h("input", { name, value: read(name), autocomplete: "off", ...attributes });
  const place = h("select", { name: "from", onchange: () => adapt() }, options(PLACES, read("from", "newest")));
  const format = h("select", { name: "format", onchange: () => redraw() }, options(FORMATS, read("format", "auto")));
  const offset = h("label", {}, "Offset", input("offset", { type: "number", min: 0 }));
  const since = h("label", {}, "Time", input("time", { type: "datetime-local", step: 1 }));
  const until = h("label", {}, "Until", input("until", { type: "datetime-local", step: 1 }));
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); remember(); run(); }, role: "search", "aria-label": "Records" },
    h("div", { class: "bar" },
      h("label", { class: "grow" }, "Search (empty: all records; ? for help)", input("q", { type: "search", "data-search": true, placeholder: 'key:order-7 $.total>10 "some text" /regex/', spellcheck: "false" })),
      h("button", { type: "submit", class: "primary" }, "Show records"),
      h("button", { type: "button", id: "stop", disabled: true, onclick: () => halt("Stopped.") }, "Stop")),
    h("div", { class: "bar" },
      h("label", {}, "From", place), offset, since, until,
      h("label", {}, "Partitions", input("partition", { placeholder: "all", size: 8, pattern: "[0-9, ]*" })),
      h("label", {}, "Limit", input("limit", { type: "number", min: 1, max: ROWS_MAX, placeholder: "50" })),
      h("label", {}, "Format", format),
      h("label", { class: "inline" }, h("input", { type: "checkbox", name: "committed", value: "1", checked: read("committed") === "1" }), "committed only"),
      h("a", { class: "button", id: "jsonl", download: "" }, "Download JSON lines"), h("a", { class: "button", id: "csv", download: "" }, "Download CSV"),
      session.read_only ? null : h("button", { type: "button", onclick: () => produce(topic, {}) }, "Produce")));
  const status = h("div", { class: "status", role: "status" });
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Progress of the search", hidden: true });
  const body = h("tbody", {});
  const more = h("div", { class: "bar" });
  const list = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Records" }, h("table", { class: "records", role: "table" },
    h("caption", {}, `Records of ${topic.name}`),
    h("thead", {}, h("tr", { role: "row" }, ["Details", "Partition", "Offset", "Time", "Key", "Value"].map((each, index) => h("th", { scope: "col", role: "columnheader", class: index === 1 || index === 2 ? "number" : null }, each)))),
    body));
  const stop = form.querySelector("#stop");
  let records = [], close = null, cursor = null;
  const open = new Set(), drawn = new WeakMap();

  function values() {
    const found = Object.fromEntries(new FormData(form));
    found.partition = (found.partition || "").replaceAll(" ", "");
    return found;
  }
  function parametersOf(found) {
    const range = { partition: found.partition, committed: found.committed, limit: found.limit, q: (found.q || "").trim() };
    if (found.from === "oldest") range.order = "oldest";
    if (found.from === "offset") { range.start_offset = found.offset || 0; range.order = "oldest"; }
    if (found.from === "time") {
      if (found.time) range.start_ms = new Date(found.time).getTime();
      if (found.until) range.end_ms = new Date(found.until).getTime();
      range.order = "oldest";
    }
    return range;
  }
  function remember() {
    const found = values();
    if (found.from === "newest") delete found.from;
    if (found.format === "auto") delete found.format;
    history.replaceState(null, "", `#/topics/${part(topic.name)}/messages${query(found)}`);
  }
  function adapt() {
    offset.hidden = place.value !== "offset";
    since.hidden = until.hidden = place.value !== "time";
    const range = parametersOf(values());
    delete range.limit;
    form.querySelector("#jsonl").href = `${base}/download${query(range)}`;
    form.querySelector("#csv").href = `${base}/download${query({ ...range, format: "csv" })}`;
  }
  function say(...words) { replace(status, bar, h("span", {}, words)); }
  function halt(message) {
    if (close) { close(); close = null; if (message) say(message, ` ${count(records.length)} records.`); }
    stop.disabled = true;
    bar.hidden = true;
  }
  function row(record) {
    const id = `${record.partition}-${record.offset}`;
    const value = record.decoded ? JSON.stringify(record.decoded) : preview(record.value);
    const button = h("button", { type: "button", "aria-expanded": open.has(id), "aria-label": `Details of partition ${record.partition} offset ${record.offset}`,
      onclick: () => { if (!open.delete(id)) open.add(id); redraw(id); } }, open.has(id) ? "Hide" : "Show");
    // Narrow windows show a row as a grid, which is still a row of a table.
    const cell = (content, kind) => h("td", { role: "cell", class: kind }, content);
    const line = h("tr", { role: "row" }, cell(button), cell(record.partition, "number"), cell(record.offset, "number"), cell(time(record.timestamp_ms)),
      cell(preview(record.key, 80), record.key === null ? "key muted" : "key"), cell(value.slice(0, 300), record.value === null ? "value muted" : "value"));
    const lines = open.has(id) ? [line, h("tr", { class: "details" }, h("td", { colspan: 6 }, details(record)))] : [line];
    drawn.set(record, lines);
    return lines;
  }
  function details(record) {
    const content = h("div", {});
    const draw = (full) => replace(content,
      full.decoded ? [h("h2", {}, full.decoded.type), h("pre", { tabindex: "0", "aria-label": "Decoded record" }, JSON.stringify(full.decoded, null, 2))] : null,
      block("Key", full.key), block("Value", full.value),
      h("h2", {}, "Headers"),
      full.headers.length ? h("dl", {}, full.headers.map((each) => [h("dt", {}, each.name), h("dd", {}, each.value === null ? "null" : shown(each.value, format.value === "hex" ? "hex" : "text"))])) : h("p", { class: "muted" }, "none"),
      full.headers_omitted ? h("p", { class: "warn" }, `${full.headers_omitted} more headers are not shown.`) : null,
      h("div", { class: "bar" },
        isCut(full) ? h("button", { type: "button", onclick: async () => draw(await get(`${base}/records/${full.partition}/${full.offset}`)) }, "Load the whole record") : null,
        full.masked ? h("span", { class: "muted" }, "Parts of this record are masked.") : null,
        session.read_only || !origin(full) ? null : h("button", { type: "button", onclick: () => sendBack(base, full) }, "Send back"),
        session.read_only || full.masked ? null : h("button", { type: "button", onclick: async () => produce(topic, isCut(full) ? await get(`${base}/records/${full.partition}/${full.offset}`) : full) }, "Send again"),
        h("a", { class: "button", href: `#/topics/${part(topic.name)}/messages?from=offset&offset=${full.offset}&partition=${full.partition}&limit=1` }, "Link")));
    draw(record);
    return content;
  }
  function block(title, form) {
    return [h("h2", {}, title, " ", form === null ? "" : h("span", { class: "tag" }, size(form.size)), form && form.truncated ? [" ", h("span", { class: "tag warn" }, "cut")] : "",
      form && form.schema ? [" ", h("span", { class: form.schema.error ? "tag warn" : "tag" }, form.schema.error ? `schema ${form.schema.id}: ${form.schema.error}` : `${form.schema.type} ${form.schema.name || ""} (schema ${form.schema.id})`)] : ""),
      form === null ? h("p", { class: "muted" }, "null") : h("pre", { tabindex: "0", "aria-label": title }, shown(form, format.value))];
  }
  function redraw(focus) {
    replace(body, records.map(row));
    if (focus) {
      const index = records.findIndex((each) => `${each.partition}-${each.offset}` === focus);
      body.querySelectorAll("button[aria-expanded]")[index]?.focus();
    }
  }

  async function run() {
    halt();
    adapt();
    records = []; open.clear(); cursor = null;
    redraw();
    replace(more);
    const found = values();
    const range = parametersOf(found);
    if (found.from === "tail") tail(range);
    else if (range.q) search(range);
    else await page(range);
  }
  async function page(range) {
    say("Reading…");
    try {
      const found = await get(`${base}/records${query({ ...range, limit: range.limit || 50, cursor })}`);
      if (!isCurrent()) return;
      records = [...records, ...found.records].slice(-ROWS_MAX);
      cursor = found.cursor;
      redraw();
      say(`${count(records.length)} records.`, found.warnings.length ? h("span", { class: "warn" }, ` ${found.warnings.join("; ")}`) : "");
      replace(more, cursor ? h("button", { type: "button", onclick: () => page(range) }, "More records") : null);
    } catch (error) {
      say(h("span", { class: "bad" }, error.message));
    }
  }
  function search(range) {
    const warnings = [];
    let waiting = 0, plan = null;
    const limit = Number(range.limit) || 100;
    const soon = () => { waiting ||= requestAnimationFrame(() => { waiting = 0; redraw(); }); };
    const progress = (now) => {
      bar.hidden = false;
      bar.max = now.total_bytes || 1;
      bar.value = now.bytes;
      say(`${hits(now.hits)} in ${count(now.records)} records, ${size(now.bytes)} of ${size(now.total_bytes)}, ${(now.elapsed_ms / 1000).toFixed(1)} s`, told());
    };
    const told = () => [plan ? h("span", { class: "muted" }, plan.local_partitions === plan.partitions ? " from local files" : plan.local_partitions ? ` ${plan.local_partitions} of ${plan.partitions} partitions from local files` : " by fetching") : "",
      warnings.length ? h("span", { class: "warn" }, ` ${warnings[warnings.length - 1]}`) : ""];
    stop.disabled = false;
    say("Searching…");
    close = stream(`${base}/search${query({ ...range, limit })}`, {
      plan: (found) => { plan = found; },
      hit: (record) => {
        records.push(record);
        const sign = range.order === "oldest" ? 1 : -1;
        records.sort((one, other) => sign * (one.timestamp_ms - other.timestamp_ms || one.partition - other.partition || one.offset - other.offset));
        // Hits that came early give way to newer (or older) ones.
        records.splice(limit);
        soon();
      },
      progress,
      warning: (found) => { warnings.push(found.message); },
      end: (found) => {
        halt();
        redraw();
        const reason = { complete: "All records searched", limit: "Stopped at the limit of hits; raise it or narrow the search", error: "Not all records could be searched", timeout: "Stopped after an hour" }[found.reason];
        say(`${reason}: ${hits(found.hits)} in ${count(found.records)} records, ${(found.elapsed_ms / 1000).toFixed(2)} s`, told());
      },
      failed: (found) => { halt(); say(h("span", { class: "bad" }, found.message)); },
      lost: (message) => { halt(); say(h("span", { class: "bad" }, message)); },
    });
  }
  function tail(range) {
    stop.disabled = false;
    say("Waiting for records…");
    close = stream(`${base}/tail${query(range)}`, {
      ready: () => say("Waiting for new records…"),
      records: (found) => {
        if (found.records.length) {
          // Rows that stay are not drawn again: the focus, and what a screen reader reads, stay with them.
          const fresh = found.records.reverse();
          records = [...fresh, ...records];
          body.prepend(...fresh.slice(0, TAIL_ROWS_MAX).flatMap(row));
          for (const gone of records.splice(TAIL_ROWS_MAX)) for (const line of drawn.get(gone) || []) line.remove();
        }
        say(`Live: ${count(found.seen)} records seen, the last ${count(records.length)} shown`,
          found.dropped ? h("strong", { class: "warn", id: "dropped" }, ` ${count(found.dropped)} more were dropped to keep up`) : "");
      },
      end: () => halt("The live tail ended after an hour."),
      failed: (found) => { halt(); say(h("span", { class: "bad" }, found.message)); },
      lost: (message) => { halt(); say(h("span", { class: "bad" }, message)); },
    });
  }

  form.addEventListener("input", adapt);
  replace(element, form, status, list, more);
  adapt();
  await run();
  return () => halt();
}

// Pipelines and Kafka Connect say in a header where a dead letter came from.
const origin = (record) => record.headers.find((each) => /^__(barnabas|connect)\.errors\.topic$/.test(each.name) && each.value)?.value.text;
const sendBack = (base, record) => ask({
  title: "Send back", action: "Send",
  fields: [h("p", {}, `The record is sent to ${origin(record)} again, with its key, value and headers, and without the headers about the error. It stays here too.`)],
  submit: async () => {
    const sent = await post(`${base}/records/${record.partition}/${record.offset}/resend`, {});
    const status = document.querySelector(".status");
    if (status) add(status, [h("span", { class: "good" }, ` Sent to ${sent.topic}, partition ${sent.partition}, offset ${sent.offset}.`)]);
  },
});

const isCut = (record) => [record.key, record.value, ...record.headers.map((each) => each.value)].some((form) => form && form.truncated);

// Bytes that are not text are sent as they are; the form shows them in hex and sends them unless they are edited.
function produce(topic, record) {
  const binary = (form) => form && form.text === undefined;
  const text = (form) => (form ? (binary(form) ? "" : form.text) : "");
  const headers = (record.headers || []).filter((each) => !binary(each.value)).map((each) => `${each.name}: ${text(each.value)}`).join("\n");
  const kept = (record.headers || []).filter((each) => binary(each.value));
  const none = (name, label, checked) => h("label", { class: "inline" }, h("input", { type: "checkbox", name, value: "1", checked }), label);
  const bytes = (form, label) => (binary(form) ? h("p", { class: "muted" }, `${label}: ${bytesOf(form).length} bytes that are not text are sent as they are, unless you enter a text.`) : null);
  return ask({
    title: `Produce to ${topic.name}`, action: "Send",
    fields: [
      field("Partition (empty: chosen by the key)", "partition", { type: "number", min: 0, value: record.partition ?? "" }),
      field("Key", "key", { rows: 2, value: text(record.key) }), bytes(record.key, "Key"), none("nokey", "no key", record.key === null || record.key === undefined),
      field("Value", "value", { rows: 8, value: text(record.value) }), bytes(record.value, "Value"), none("novalue", "no value (a tombstone)", record.value === null),
      field("Headers, one a line, such as name: value", "headers", { rows: 3, value: headers }),
      kept.length ? h("p", { class: "muted" }, `Headers with bytes are kept: ${kept.map((each) => each.name).join(", ")}`) : null],
    submit: async (found) => {
      const side = (entered, nothing, form) => (nothing ? null : entered === "" && binary(form) ? { base64: form.base64 } : { text: entered });
      const lines = found.headers.split("\n").filter((line) => line.trim());
      const bad = lines.find((line) => !line.includes(":"));
      if (bad) throw new Error(`The header ${bad} has no colon.`);
      const body = {
        key: side(found.key, found.nokey && found.key === "", record.key), value: side(found.value, found.novalue && found.value === "", record.value),
        headers: [...lines.map((line) => ({ name: line.slice(0, line.indexOf(":")).trim(), value: { text: line.slice(line.indexOf(":") + 1).replace(/^ /, "") } })),
          ...kept.map((each) => ({ name: each.name, value: each.value === null ? null : { base64: each.value.base64 } }))],
      };
      if (found.partition !== "") body.partition = Number(found.partition);
      const sent = await post(`/api/topics/${part(topic.name)}/records`, body);
      const status = document.querySelector(".status");
      if (status) add(status, [h("span", { class: "good" }, ` Sent to partition ${sent.partition}, offset ${sent.offset}.`)]);
    },
  });
}
