// Starts the page. hbatune decides everything; the page runs its commands and shows their answers.

import { applyProfile } from "./apply.js";
import { followPermission } from "./commands.js";
import { restartWatch } from "./disks.js";
import { offerProfiles, refreshPlan } from "./plan.js";
import { rollBack } from "./rollback.js";
import { showStatus } from "./status.js";
import { followTheme } from "./theme.js";

const applyButton = document.getElementById("apply");
const rollbackButton = document.getElementById("rollback");
const profile = document.getElementById("profile");
let isAllowed = false;
let isRunning = false;

function enableButtons() {
    applyButton.disabled = !isAllowed || isRunning || profile.value === "";
    rollbackButton.disabled = !isAllowed || isRunning;
}

/** Read everything again. The commands run one after the other, to load the host little. */
async function refreshPage() {
    restartWatch();
    await showStatus();
    const areOffered = await offerProfiles();
    enableButtons();
    if (areOffered)
        await refreshPlan();
}

/** Run a change; the other button is off until it has ended. */
async function runChange(change, button) {
    isRunning = true;
    enableButtons();
    try {
        if (await change())
            await refreshPage();
    } finally {
        isRunning = false;
        enableButtons();
        button.focus();
    }
}

applyButton.addEventListener("click", () => runChange(applyProfile, applyButton));
rollbackButton.addEventListener("click", () => runChange(rollBack, rollbackButton));
profile.addEventListener("change", () => {
    enableButtons();
    refreshPlan();
});
followTheme();
followPermission((allowed) => {
    isAllowed = allowed;
    document.getElementById("limited").hidden = allowed;
    enableButtons();
});
refreshPage();
