// Shows that a command runs: its words, its messages as they come, and the elapsed time.

import { changeWithHbatune } from "./commands.js";
import { fillElement, makeElement } from "./elements.js";

function formatElapsed(started) {
    const seconds = Math.floor((performance.now() - started) / 1000);
    return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** Run a command that changes values, show its progress in this element, and return its answer. */
export async function runWithProgress(id, words) {
    const started = performance.now();
    // Screen readers read the messages, not each second.
    const clock = makeElement("span", "dim", "0:00");
    clock.setAttribute("aria-hidden", "true");
    const bar = makeElement("progress");
    bar.setAttribute("aria-label", "running");
    const messages = makeElement("p", "messages dim",
        "Keep this page open. Closing it stops the command.");
    fillElement(id, makeElement("div", "running",
        makeElement("p", "", makeElement("code", "", `hbatune ${words.join(" ")}`), " is running ", clock),
        bar, messages));
    const timer = setInterval(() => { clock.textContent = formatElapsed(started); }, 1000);
    try {
        return await changeWithHbatune(words, (message) => messages.append("\n", message));
    } finally {
        clearInterval(timer);
    }
}
