// Shows the answer of `hbatune diff`: what a profile would change, and why.

import { lookWithHbatune } from "./commands.js";
import {
    fillElement, makeElement, makeFailure, makeMessages, makeTable, makeWordCell,
} from "./elements.js";
import { formatCount, formatCounts, formatNames, formatValue, nameState } from "./words.js";

const CONTENT = ["setting", "current", "before", "value", "state", "outcome", "found",
    "errno", "limit", "why", "source"];

/** Return the rows without their targets, each with the `targets` of all rows equal to it. */
export function groupRows(rows) {
    const groups = new Map();
    for (const row of rows) {
        const key = JSON.stringify(CONTENT.map((name) => row[name]));
        if (!groups.has(key))
            groups.set(key, { ...row, targets: [] });
        groups.get(key).targets.push(row.target);
    }
    return [...groups.values()];
}

function makeReasonCell(row) {
    const cell = makeElement("td", "reason", row.why, " ", makeElement("span", "dim", row.source));
    if (row.limit !== null)
        cell.append(makeElement("div", "", `here: ${row.limit}`));
    if (row.found !== null)
        cell.append(makeElement("div", "", `reads ${row.found}`));
    if (row.errno !== null)
        cell.append(makeElement("div", "", `error ${row.errno} of the kernel`));
    return cell;
}

/** Return the table of a plan: with states, or after `apply` with outcomes. */
export function makePlanTable(label, rows) {
    const columns = ["Targets", "Setting", "Current", "Wanted", "State", "Why"];
    return makeTable(label, columns, groupRows(rows).map((row) => [
        makeElement("td", "name", formatNames(row.targets)),
        makeElement("td", "setting", row.setting),
        formatValue(row.current),
        makeElement("td", "value", formatValue(row.value)),
        makeWordCell(row.outcome ?? nameState(row.state)),
        makeReasonCell(row),
    ]));
}

function makeRemainingRows(rows) {
    return makeElement("details", "",
        makeElement("summary", "", formatCount(rows.length, "other setting")),
        makePlanTable("Other settings", rows));
}

function showPlan(answer) {
    const { rows, summary, left_alone: disksLeftAlone } = answer.document;
    const drift = rows.filter((row) => row.state === "drift");
    const others = rows.filter((row) => row.state !== "drift");
    const parts = [makeElement("p", "answer", `${formatCounts(summary.states) || "no setting"}.`)];
    if (drift.length > 0)
        parts.push(makePlanTable("What would change", drift));
    if (others.length > 0)
        parts.push(makeRemainingRows(others));
    for (const disks of Object.values(Object.groupBy(disksLeftAlone, (disk) => disk.reason)))
        parts.push(makeElement("p", "dim",
            `Left alone: ${formatNames(disks.map((disk) => disk.target))} (${disks[0].reason})`));
    if (answer.messages.length > 0)
        parts.push(makeMessages(answer.messages));
    fillElement("plan-content", ...parts);
}

/** Show the plan of the chosen profile. */
export async function refreshPlan() {
    const profile = document.getElementById("profile").value;
    if (profile === "") {
        fillElement("plan-content", makeElement("p", "dim",
            "Choose what this host is for, to see what would change."));
        return;
    }
    const answer = await lookWithHbatune(["diff", "--profile", profile]);
    if (answer.document === null)
        fillElement("plan-content", makeFailure(answer));
    else
        showPlan(answer);
}

/**
 * Offer the profiles, and return whether there are any to choose from.
 *
 * The choice stays; at first it is the active profile, or none.
 */
export async function offerProfiles() {
    const answer = await lookWithHbatune(["profiles"]);
    if (answer.document === null) {
        fillElement("plan-content", makeFailure(answer));
        return false;
    }
    const { active, profiles } = answer.document;
    const choices = profiles.map(({ name, title }) => new Option(`${name}: ${title}`, name));
    const select = document.getElementById("profile");
    const chosen = select.value || active;
    if (!chosen)
        choices.unshift(new Option("choose one", ""));
    select.replaceChildren(...choices);
    select.value = chosen ?? "";
    return true;
}
