export function count(value) {
  return value === null || value === undefined ? "–" : Number(value).toLocaleString("en-US");
}

// "1 topic", "2 topics".
export function counted(value, one) {
  return `${count(value)} ${one}${value === 1 ? "" : "s"}`;
}

export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = bytes, unit = 0;
  while (value >= 1024 && unit < units.length - 1) { value /= 1024; unit += 1; }
  return `${unit ? value.toFixed(value < 10 ? 1 : 0) : value} ${units[unit]}`;
}

export function rate(value) {
  return `${Number(value).toLocaleString("en-US", { maximumFractionDigits: value < 10 ? 1 : 0 })}/s`;
}

// A name that breaks after its dots, where it must break at all.
export function dotted(name) {
  return name.split(".").flatMap((each, index) => (index ? [".", document.createElement("wbr"), each] : [each]));
}

export function duration(ms) {
  const units = [["d", 86400000], ["h", 3600000], ["min", 60000], ["s", 1000]];
  const [name, length] = units.find(([, each]) => ms >= each && ms % each === 0) || units.find(([, each]) => ms >= each) || ["ms", 1];
  return `${Number((ms / length).toFixed(1))} ${name}`;
}

export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const date = new Date(ms);
  if (Number.isNaN(date.getTime())) return `${ms} ms`;
  const two = (number, width = 2) => String(number).padStart(width, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${two(date.getMilliseconds(), 3)}`;
}

// The bytes of a rendered key, value or header.
export function bytesOf(form) {
  if (form.base64 !== undefined) return Uint8Array.from(atob(form.base64), (each) => each.charCodeAt(0));
  return new TextEncoder().encode(form.text);
}

export function hex(bytes) {
  const lines = [];
  for (let start = 0; start < bytes.length; start += 16) {
    const row = [...bytes.slice(start, start + 16)];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    const letters = row.map((each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${start.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  ${letters}`);
  }
  return lines.join("\n");
}

// A key or value in one line, for a list.
export function preview(form, limit = 300) {
  if (form === null) return "null";
  if (form.schema?.json !== undefined) return form.schema.json.slice(0, limit);
  if (form.text !== undefined) return form.text.slice(0, limit);
  return [...bytesOf(form).slice(0, 48)].map((each) => each.toString(16).padStart(2, "0")).join(" ");
}

// A key or value as text, JSON or hex. "auto" is JSON if it is some, else text, else hex.
export function shown(form, format) {
  if (form === null) return "null";
  if (form.schema?.json !== undefined && (format === "auto" || format === "json")) return JSON.stringify(JSON.parse(form.schema.json), null, 2);
  if (format === "hex" || (format === "auto" && form.text === undefined)) return hex(bytesOf(form));
  const text = form.text !== undefined ? form.text : new TextDecoder().decode(bytesOf(form));
  if (format === "text") return text;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
