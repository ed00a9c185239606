// Restores all original values after a confirmation.

import { lookWithHbatune } from "./commands.js";
import { askForConfirmation } from "./confirmation.js";
import {
    fillElement, makeElement, makeFailure, makeMessages, makeTable, makeWordCell,
} from "./elements.js";
import { groupRows } from "./plan.js";
import { runWithProgress } from "./progress.js";
import { formatCount, formatCounts, formatNames, formatValue } from "./words.js";

function makeRestoreTable(label, rows) {
    return makeTable(label, ["Targets", "Setting", "Current", "Original", "Outcome"],
        groupRows(rows).map((row) => [
            makeElement("td", "name", formatNames(row.targets)),
            makeElement("td", "setting", row.setting),
            formatValue(row.current),
            makeElement("td", "value", formatValue(row.before)),
            makeWordCell(row.outcome ?? "to restore"),
        ]));
}

async function confirmRollback() {
    const preview = await lookWithHbatune(["rollback", "--dry-run"]);
    if (preview.document === null) {
        fillElement("rollback-result", makeFailure(preview));
        return false;
    }
    const rows = preview.document.rows.filter((row) => row.outcome !== "kept");
    const text = rows.length > 0 ? `${formatCount(rows.length, "value")} will be restored:`
        : "No value differs from its original. No profile will be active any more.";
    const content = [makeElement("p", "", text)];
    if (rows.length > 0)
        content.push(makeElement("div", "scroll", makeRestoreTable("To be restored", rows)));
    return askForConfirmation("Roll back to the original values?", "Roll back", ...content);
}

function showResult(answer) {
    const { rows, outcomes, losses } = answer.document;
    const parts = [makeElement("h3", "", `Rolled back: ${formatCounts(outcomes) || "nothing to restore"}`)];
    const tried = rows.filter((row) => row.outcome !== "kept");
    if (tried.length > 0)
        parts.push(makeRestoreTable("Outcomes", tried));
    if (losses.length > 0)
        parts.push(makeElement("p", "failure",
            `${formatCount(losses.length, "original value")} lost from the journal`));
    if (answer.messages.length > 0)
        parts.push(makeMessages(answer.messages));
    fillElement("rollback-result", ...parts);
}

/** Ask, roll back, and show the result. Return whether the command ran. */
export async function rollBack() {
    if (!await confirmRollback())
        return false;
    const answer = await runWithProgress("rollback-result", ["rollback"]);
    if (answer.document === null)
        fillElement("rollback-result", makeFailure(answer));
    else
        showResult(answer);
    return true;
}
