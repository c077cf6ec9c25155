import { h, part, replace, table } from "./dom.js";
import { get, post } from "./api.js";
import { count, counted, time } from "./format.js";
import { ask, field } from "./dialog.js";
import { repeat } from "./refresh.js";

export async function transactionsPage({ element, session, isCurrent }) {
  const update = async () => {
    const found = await get("/api/transactions");
    if (!isCurrent()) return;
    const fence = (row) => ask({
      title: "Fence the producers", action: "Fence", danger: true,
      fields: [h("p", {}, `Producers that use ${row.transactional_id} now can no longer write, and their open transaction is aborted.`), field(`Type ${row.transactional_id} to confirm`, "confirm", { required: true })],
      submit: async (values) => { await post(`/api/transactions/${part(row.transactional_id)}/fence`, { confirm: values.confirm }); await update(); },
    });
    replace(element, h("h1", {}, "Transactions"),
      table(counted(found.total, "transactional id"), [
        { title: "Transactional id", cell: (row) => row.transactional_id, class: "wrap" },
        { title: "State", cell: (row) => row.state },
        { title: "Producer id", cell: (row) => row.producer_id, number: true },
        { title: "Epoch", cell: (row) => row.producer_epoch, number: true },
        { title: "Began", cell: (row) => time(row.start_ms) },
        { title: "Time-out", cell: (row) => `${count(row.timeout_ms)} ms`, number: true },
        { title: "Partitions", cell: (row) => row.partitions.join(", ") || "–", class: "long" },
        { title: "Change", cell: (row) => (session.read_only ? "–" : h("button", { type: "button", class: "danger", onclick: () => fence(row), "aria-label": `Fence ${row.transactional_id}` }, "Fence")) },
      ], found.transactions, "There are no transactions."),
      h("p", { class: "muted" }, "Hanging transactions, which their coordinator has forgotten, are on the Producers page of their topic."));
  };
  await update();
  return repeat(update);
}
