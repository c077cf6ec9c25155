import { replace } from "./dom.js";
import { time } from "./format.js";

const EVERY_MS = 10000;
const LATE_MS = 30000;

// A message above the page; none hides it. A message that is there already is not read out again.
export function tell(message) {
  const box = document.getElementById("alert");
  box.hidden = !message;
  if (box.textContent !== message) replace(box, message);
}

// Calls now and every few seconds, until the page is left. While calls fail, the page says since when it is out of date, and
// what it claims about now, the elements with data-now, becomes unknown; the next success draws them again.
export function repeat(work) {
  let timer = 0, left = false, since = Date.now();
  const failed = (reason) => {
    if (left) return;
    tell(`Not refreshed since ${time(since).slice(11, 19)}: ${reason}`);
    for (const each of document.querySelectorAll("[data-now]")) {
      each.textContent = "Unknown";
      each.classList.remove("good", "bad");
    }
  };
  const run = async () => {
    if (!document.hidden) {
      const late = setTimeout(failed, LATE_MS, `The console has not answered for ${LATE_MS / 1000} s.`);
      try {
        await work();
        since = Date.now();
        if (!left) tell("");
      } catch (error) {
        failed(error.message);
      } finally {
        clearTimeout(late);
      }
    }
    if (!left) timer = setTimeout(run, EVERY_MS);
  };
  timer = setTimeout(run, EVERY_MS);
  return () => { left = true; clearTimeout(timer); };
}
