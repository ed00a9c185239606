// The words and numbers of this page for the names and numbers in hbatune's JSON.

const STATES = {
    ok: "as wanted",
    drift: "to change",
    excluded: "left alone",
    unmatched: "disks without a rule",
    not_running: "not running",
};
const SHOWN_NAMES = 8;
const NONE = "–";

/** Return the word for a state; other states are words already. */
export function nameState(state) {
    return STATES[state] ?? state;
}

/** Return counts by state in one line: "4 as wanted, 9 to change". */
export function formatCounts(counts) {
    const present = Object.entries(counts).filter(([, count]) => count > 0);
    return present.map(([state, count]) => `${count} ${nameState(state)}`).join(", ");
}

/** Return "1 setting" or "2 settings". */
export function formatCount(count, noun) {
    return `${formatNumber(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Return at most eight names in order, and then their number. */
export function formatNames(names) {
    const sorted = names.toSorted(new Intl.Collator("en", { numeric: true }).compare);
    if (names.length <= SHOWN_NAMES)
        return sorted.join(" ");
    return `${sorted.slice(0, SHOWN_NAMES).join(" ")} … (${names.length})`;
}

export function formatValue(value) {
    return value === null ? NONE : String(value);
}

/** Return a number with the given digits after the point, or a dash for null. */
export function formatNumber(number, digits = 0) {
    if (number === null)
        return NONE;
    return number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Return a ratio as a change in percent: "+46". */
export function formatChange(ratio) {
    const percent = Math.round((ratio - 1) * 100);
    return percent > 0 ? `+${percent}` : String(percent).replace("-", "−");
}

export function formatTime(seconds) {
    const time = new Date(seconds * 1000);
    return time.toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
