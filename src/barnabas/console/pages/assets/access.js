import { announcer, h, replace, table } from "./dom.js";
import { get, post, query, remove } from "./api.js";
import { count, counted } from "./format.js";
import { ask, confirmName, field } from "./dialog.js";

const MECHANISMS = ["SCRAM-SHA-512", "SCRAM-SHA-256"];
const OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CLUSTER_ACTION", "CREATE_TOKENS", "DESCRIBE_TOKENS", "ALL"];
const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const choose = (label, name, values) => h("label", {}, label, h("select", { name }, values.map((each) => h("option", { value: each }, each))));

export async function accessPage({ element, parameters, session, isCurrent }) {
  let search = parameters.get("search") || "";
  const users = h("div", {}), acls = h("div", {}), heard = announcer();
  const change = (...content) => (session.read_only ? null : content);
  // Brokers without users or an authorizer say why; the other part is still shown.
  const told = (error) => h("p", { class: "warn" }, error.message);

  const showUsers = async () => {
    let content;
    try {
      const found = await get("/api/users");
      const rows = found.users.flatMap((user) => user.mechanisms.map((each) => ({ name: user.name, ...each })));
      content = table(counted(found.total, "user"), [
        { title: "User", cell: (row) => row.name, class: "wrap" },
        { title: "Mechanism", cell: (row) => row.mechanism, class: "short" },
        { title: "Iterations", cell: (row) => count(row.iterations), number: true },
        { title: "Change", cell: (row) => change(
          h("button", { type: "button", "aria-label": `Change the password of ${row.name} for ${row.mechanism}`, onclick: () => password(row.name, row.mechanism) }, "Password"), " ",
          h("button", { type: "button", class: "danger", "aria-label": `Delete ${row.name} for ${row.mechanism}`, onclick: () => forget(row) }, "Delete")) || "–" },
      ], rows, "No user has a password (SCRAM).");
    } catch (error) { content = told(error); }
    if (isCurrent()) replace(users, content);
  };
  const password = (name, mechanism) => ask({
    title: name ? `Change the password of ${name}` : "Create a user", action: name ? "Change" : "Create",
    fields: [name ? null : field("Name", "name", { required: true }),
      name ? null : choose("Mechanism", "mechanism", MECHANISMS),
      field("Password", "password", { type: "password", required: true, autocomplete: "new-password" })],
    submit: async (values) => { await post("/api/users", { name, mechanism, ...values }); await showUsers(); },
  });
  const forget = (row) => confirmName("Delete the password", row.name, `${row.name} can no longer log in with ${row.mechanism}. Connections that are open stay.`, async () => {
    await remove(`/api/users/${encodeURIComponent(row.name)}`, { confirm: row.name, mechanism: row.mechanism });
    await showUsers();
  });

  let asked = 0;
  const showAcls = async () => {
    const current = (asked += 1);
    let content;
    try {
      const found = await get(`/api/acls${query({ search })}`);
      heard.say(counted(found.total, "ACL"));
      content = table(counted(found.total, "ACL"), [
        { title: "Principal", cell: (row) => row.principal, class: "wrap" },
        { title: "Permission", cell: (row) => h("span", { class: row.permission === "DENY" ? "bad" : "good" }, row.permission) },
        { title: "Operation", cell: (row) => row.operation },
        { title: "Resource", cell: (row) => `${row.resource_type} ${row.resource}${row.pattern_type === "PREFIXED" ? "… (prefix)" : ""}`, class: "wrap" },
        { title: "Host", cell: (row) => row.host },
        { title: "Change", cell: (row) => change(h("button", { type: "button", class: "danger", "aria-label": `Delete the ACL ${row.operation} of ${row.principal} on ${row.resource}`, onclick: () => revoke(row) }, "Delete")) || "–" },
      ], found.acls, search ? "No ACL has this principal or resource." : "There are no ACLs.");
    } catch (error) { content = told(error); }
    if (isCurrent() && current === asked) replace(acls, content);
  };
  const allow = () => ask({
    title: "Create an ACL", action: "Create",
    fields: [field("Principal, such as User:ann", "principal", { required: true, value: "User:" }), choose("Permission", "permission", ["ALLOW", "DENY"]),
      choose("Operation", "operation", OPERATIONS), choose("Resource type", "resource_type", RESOURCES),
      field("Resource (* is all, kafka-cluster is the cluster)", "resource", { required: true }), choose("The resource is", "pattern_type", ["LITERAL", "PREFIXED"]),
      field("Host (* is all)", "host", { required: true, value: "*" })],
    submit: async (values) => { await post("/api/acls", values); await showAcls(); },
  });
  const revoke = (row) => ask({
    title: "Delete the ACL", action: "Delete", danger: true,
    fields: [h("p", {}, `${row.principal}: ${row.permission} ${row.operation} on ${row.resource_type} ${row.resource} from ${row.host}. This takes effect at once.`)],
    submit: async () => { await remove("/api/acls", row); await showAcls(); },
  });

  replace(element, h("h1", {}, "Access"),
    h("h2", {}, "Users"), change(h("div", { class: "bar" }, h("button", { type: "button", onclick: () => password() }, "Create user"))), users,
    h("h2", {}, "ACLs"),
    h("div", { class: "bar" }, h("label", { class: "grow" }, "Find a principal or a resource", h("input", { type: "search", value: search, "data-search": true,
      oninput: (event) => { search = event.target.value; history.replaceState(null, "", `#/access${query({ search })}`); showAcls(); } })),
    change(h("button", { type: "button", onclick: allow }, "Create ACL"))), heard.element, acls);
  await Promise.all([showUsers(), showAcls()]);
}
