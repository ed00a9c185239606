// Applies the chosen profile after a confirmation, and shows outcomes and verdicts.

import { lookWithHbatune } from "./commands.js";
import { askForConfirmation } from "./confirmation.js";
import { fillElement, makeElement, makeFailure, makeMessages } from "./elements.js";
import { makePlanTable } from "./plan.js";
import { runWithProgress } from "./progress.js";
import { makeVerdictTable } from "./verdicts.js";
import { formatCount, formatCounts } from "./words.js";

function makeMeasureChoice() {
    const box = makeElement("input");
    box.type = "checkbox";
    box.id = "measure";
    box.checked = true;
    return makeElement("label", "choice", box,
        " Measure the effect with short read-only runs of fio, and revert regressions");
}

/** Show what would be set, and return the words of the confirmed command, or null. */
async function confirmApply(profile) {
    const words = ["apply", "--profile", profile];
    const preview = await lookWithHbatune([...words, "--dry-run"]);
    if (preview.document === null) {
        fillElement("apply-result", makeFailure(preview));
        return null;
    }
    const drift = preview.document.rows.filter((row) => row.state === "drift");
    const content = drift.length > 0 ? makePlanTable("To be set", drift)
        : makeElement("p", "", "No setting differs. The profile becomes the active one.");
    const question = `${formatCount(drift.length, "setting")} will be set:`;
    const confirmed = await askForConfirmation(`Apply ${profile}?`, `Apply ${profile}`,
        makeElement("p", "", drift.length > 0 ? question : ""),
        makeElement("div", "scroll", content), makeMeasureChoice());
    if (!confirmed)
        return null;
    return document.getElementById("measure").checked ? words : [...words, "--no-probe"];
}

function showResult(answer) {
    const { rows, summary, verdicts } = answer.document;
    const parts = [makeElement("h3", "", `Applied ${summary.profile}: ${formatCounts(summary.outcomes)}`)];
    if (verdicts?.length > 0)
        parts.push(makeVerdictTable(verdicts));
    const tried = rows.filter((row) => row.outcome !== null && row.outcome !== "kept");
    if (tried.length > 0)
        parts.push(makePlanTable("Outcomes", tried));
    if (answer.messages.length > 0)
        parts.push(makeMessages(answer.messages));
    fillElement("apply-result", ...parts);
}

/** Ask, apply the chosen profile, and show the result. Return whether the command ran. */
export async function applyProfile() {
    const words = await confirmApply(document.getElementById("profile").value);
    if (words === null)
        return false;
    const answer = await runWithProgress("apply-result", words);
    if (answer.document === null)
        fillElement("apply-result", makeFailure(answer));
    else
        showResult(answer);
    return true;
}
