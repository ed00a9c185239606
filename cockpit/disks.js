// Shows the disks of `hbatune watch`, which runs while the page is visible.

import { watchWithHbatune } from "./commands.js";
import { fillElement, makeElement, makeMessages, makeNumberCell, makeTable } from "./elements.js";
import { formatCount, formatNumber } from "./words.js";

const SHOWN_DISKS = 8;
const COLUMNS = ["Disk", "p99 ms", "Goal ms", "Mean ms", "IOPS", "In flight"];

/** Return the readings in order: with an alert, with a goal, and then the highest latency. */
function sortReadings(document) {
    const alerted = new Set(document.alerts.map((alert) => alert.id));
    const keys = (reading) => [
        alerted.has(reading.id) ? 1 : 0,
        reading.objective_ms === null ? 0 : 1,
        reading.p99_ms ?? reading.mean_ms ?? 0,
    ];
    return document.readings.toSorted((one, other) => {
        const [left, right] = [keys(one), keys(other)];
        const place = left.findIndex((key, index) => key !== right[index]);
        return place < 0 ? 0 : right[place] - left[place];
    });
}

function makeReadingRow(reading, alerts) {
    const conditions = alerts.filter((alert) => alert.id === reading.id)
        .map((alert) => ` ▲ ${alert.condition}`);
    return [
        makeElement("td", "name", reading.target, makeElement("span", "alert", ...conditions)),
        makeNumberCell(formatNumber(reading.p99_ms, 2)),
        makeNumberCell(formatNumber(reading.objective_ms, 2)),
        makeNumberCell(formatNumber(reading.mean_ms, 2)),
        makeNumberCell(formatNumber(reading.iops)),
        makeNumberCell(formatNumber(reading.in_flight, 1)),
    ];
}

function showReadings(document, messages) {
    const sorted = sortReadings(document);
    const rows = sorted.slice(0, SHOWN_DISKS).map((item) => makeReadingRow(item, document.alerts));
    const parts = rows.length > 0 ? [makeTable("Worst disks now", COLUMNS, rows)]
        : [makeElement("p", "dim", "No disk was measured.")];
    const more = sorted.length - rows.length;
    if (more > 0)
        parts.push(makeElement("p", "dim", `and ${formatCount(more, "disk")} more`));
    parts.push(...messages.map((message) => makeMessages([message])));
    fillElement("disks-content", ...parts);
}

let stopWatch = () => {};

function startWatch() {
    const messages = [];
    stopWatch = watchWithHbatune(
        (readings) => showReadings(readings, messages),
        (message) => {
            messages.push(message);
            fillElement("disks-content", makeMessages(messages));
        },
    );
}

/** Watch the disks from now on, with the goals of the profile that is active now. */
export function restartWatch() {
    stopWatch();
    stopWatch = () => {};
    // A hidden page costs the host nothing.
    if (!document.hidden)
        startWatch();
}

document.addEventListener("visibilitychange", restartWatch);
