// Shows the answer of `hbatune status`: is this host tuned?

import { lookWithHbatune } from "./commands.js";
import { fillElement, makeElement, makeFailure, makeMessages } from "./elements.js";
import { formatCount, formatCounts, formatNumber, formatTime, nameState } from "./words.js";
import { makeVerdictTable } from "./verdicts.js";

/** The marks and tones of the exit codes of `status`. */
const TONES = { 0: ["●", "good"], 1: ["▲", "look"], 4: ["○", "off"] };

function describeAdapter(adapter) {
    const disks = Object.entries(adapter.disks).map(([kind, count]) => formatCount(count, kind));
    return `${adapter.target}  ${adapter.product}, ${disks.join(", ")}`;
}

function describeDaemon(status) {
    const last = status.status?.last;
    return nameState(status.daemon) + (last ? `, last pass ${formatTime(last.time)}` : "");
}

function describeAlert(alert) {
    const detail = alert.detail ? ` (${alert.detail})` : "";
    return `${alert.target}: ${alert.condition}${detail} ${formatNumber(alert.value, 2)}, ` +
        `limit ${formatNumber(alert.limit, 2)}, since ${formatTime(alert.raised)}`;
}

/** Return the lines of each fact about the host, by label; facts without lines are not shown. */
function listFacts(status) {
    const profile = status.profile && `${status.profile}, ` +
        (status.kept ? "kept across boots" : "not kept across boots");
    return {
        Profile: profile ? [profile] : ["none"],
        Adapters: status.adapters.map(describeAdapter),
        Settings: [formatCounts(status.counts)],
        "Left alone": status.skipped,
        Daemon: [describeDaemon(status)],
        Findings: [status.findings ? formatCounts(status.findings) || "none" : "not looked at"],
        Alerts: (status.status?.alerts ?? []).map(describeAlert),
    };
}

function makeFacts(status) {
    const list = makeElement("dl");
    for (const [label, lines] of Object.entries(listFacts(status))) {
        const details = lines.filter((line) => line !== "");
        if (details.length > 0)
            list.append(makeElement("dt", "", label),
                ...details.map((line) => makeElement("dd", "", line)));
    }
    return list;
}

function makeNextCommands(commands) {
    const list = makeElement("ul", "next");
    for (const [command, purpose] of commands)
        list.append(makeElement("li", "", makeElement("code", "", command), ` ${purpose}`));
    return makeElement("div", "", makeElement("h3", "", "Next, in a terminal"), list);
}

/** Show the status of the host, and the number of original values next to the undo button. */
export async function showStatus() {
    const answer = await lookWithHbatune(["status"]);
    const status = answer.document;
    const section = document.getElementById("status");
    const [mark, tone] = status ? TONES[answer.code] : ["✗", "bad"];
    section.dataset.tone = tone;
    const headline = status ? status.headline : "cannot tell whether this host is tuned";
    fillElement("headline", makeElement("span", "mark", mark), " ", headline);
    if (status === null) {
        fillElement("status-content", makeFailure(answer));
        return;
    }
    const parts = [makeFacts(status)];
    if (status.verdicts?.length > 0)
        parts.push(makeElement("h3", "", "Latest verdicts"),
            makeVerdictTable(status.verdicts.map((record) => record.proof)));
    if (status.next.length > 0)
        parts.push(makeNextCommands(status.next));
    if (answer.messages.length > 0)
        parts.push(makeMessages(answer.messages));
    fillElement("status-content", ...parts);
    const values = status.journal?.values;
    fillElement("undo-content", values === undefined ? "The number of original values is not known."
        : `${formatCount(values, "original value")} recorded.`);
}
