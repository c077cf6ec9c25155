// Calls of the console's own API. Errors have the message that the server sends.
export class ApiError extends Error {
  constructor(status, form) {
    super(form.message || `The console answered ${status}.`);
    this.status = status;
    this.name = form.error || "ERROR";
  }
}

async function call(method, path, body, signal) {
  let response;
  try {
    response = await fetch(path, {
      method, signal,
      headers: method === "GET" ? {} : { "x-barnabas-console": "1", "content-type": "application/json" },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "The console does not answer. Is it still running?" });
  }
  const form = await response.json().catch(() => ({}));
  if (response.status === 401 && form.login === "cluster") window.dispatchEvent(new Event("loggedout"));
  if (!response.ok) throw new ApiError(response.status, form);
  return form;
}

export const get = (path, signal) => call("GET", path, undefined, signal);
export const post = (path, body) => call("POST", path, body);
export const patch = (path, body) => call("PATCH", path, body);
export const remove = (path, body) => call("DELETE", path, body);

export function query(parameters) {
  const chosen = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== "" && value !== null && value !== undefined && value !== false) chosen.set(name, value === true ? "1" : value);
  }
  const text = chosen.toString();
  return text ? `?${text}` : "";
}

// Server-sent events; returns a function that closes the stream. A stream that ends is not opened again.
export function stream(path, handlers) {
  const source = new EventSource(path);
  let closed = false;
  const close = () => { closed = true; source.close(); };
  for (const [name, handle] of Object.entries(handlers)) {
    if (name === "lost") continue;
    source.addEventListener(name, (event) => { if (!closed) handle(JSON.parse(event.data)); });
  }
  source.onerror = async () => {
    if (closed) return;
    close();
    // An event source does not tell why it was refused; the same request does.
    try {
      const controller = new AbortController();
      const response = await fetch(path, { signal: controller.signal });
      const form = response.ok ? {} : await response.json().catch(() => ({}));
      controller.abort();
      handlers.lost(form.message || "The connection to the console was lost.");
    } catch {
      handlers.lost("The console does not answer. Is it still running?");
    }
  };
  return close;
}
