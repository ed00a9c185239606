// Shows verdicts: the comparisons of disks with and without a change.

import { makeElement, makeTable, makeWordCell } from "./elements.js";
import { formatChange } from "./words.js";

function describeSettings(proof) {
    return (proof.group ?? proof.settings.join(", ")) + (proof.again ? " again" : "");
}

function makeChangeCell(proof, metric) {
    const change = proof.verdict.changes.find((entry) => entry.metric === metric);
    if (change === undefined)
        return makeElement("td", "", "–");
    const interval = `${formatChange(change.low)} to ${formatChange(change.high)}`;
    return makeElement("td", "", makeElement("div", "", `${formatChange(change.ratio)} %`),
        makeElement("div", "dim interval", interval));
}

/** Return a table with a row for each comparison, and its confidence. */
export function makeVerdictTable(proofs) {
    const rows = proofs.map((proof) => [
        makeElement("td", "name", proof.target),
        describeSettings(proof),
        makeWordCell(proof.left_out ? "no time" : proof.verdict.word),
        makeChangeCell(proof, "iops"),
        makeChangeCell(proof, "mean"),
        makeChangeCell(proof, "p99"),
    ]);
    return makeElement("div", "",
        makeTable("Verdicts", ["Disk", "Settings", "Verdict", "IOPS", "Mean", "p99"], rows),
        makeElement("p", "dim", "Below each change: its interval. Each limit is 99 % sure."));
}
