import { alike, h, replace } from "./dom.js";

// Shows a dialog. When it closes, the focus goes back, to the control of the same name if the page was drawn again meanwhile.
function open(title, closed, ...content) {
  const opener = document.activeElement;
  const dialog = h("dialog", { "aria-label": title, onclose: () => {
    dialog.remove();
    if (!opener.isConnected) alike(document.body, opener)[0]?.focus();
    closed();
  } }, h("h2", {}, title), content);
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

// Opens a dialog with a form. `submit` gets the values by name; an error that it throws stays in the dialog.
export function ask({ title, fields, action, danger, submit }) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "bad", role: "alert" });
    const go = h("button", { type: "submit", class: danger ? "danger" : "primary" }, action);
    const form = h("form", {
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        replace(problem);
        try {
          const values = Object.fromEntries(new FormData(form));
          const result = await submit(values);
          if (result !== false) { dialog.close(); resolve(true); }
        } catch (error) {
          replace(problem, error.message);
        } finally {
          go.disabled = false;
        }
      },
    }, fields, problem, h("div", { class: "bar" }, h("button", { type: "button", onclick: () => dialog.close() }, "Cancel"), go));
    const dialog = open(title, () => resolve(false), form);
  });
}

export function field(label, name, attributes = {}) {
  return h("label", {}, label, h(attributes.rows ? "textarea" : "input", { name, autocomplete: "off", ...attributes }));
}

export function show(title, ...content) {
  const dialog = open(title, () => {}, content, h("div", { class: "bar" }, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
}

// Deletes something after its name was typed.
export function confirmName(title, name, what, submit) {
  return ask({
    title, action: "Delete", danger: true,
    fields: [h("p", {}, what), field(`Type ${name} to confirm`, "confirm", { required: true })],
    submit: async (values) => {
      if (values.confirm !== name) throw new Error(`This is not ${name}.`);
      await submit(values);
    },
  });
}
