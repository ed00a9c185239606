// Asks before a change. The dialog is the browser's own: it keeps the focus, and Escape closes it.

import { fillElement } from "./elements.js";

/** Show a dialog and return whether the user confirmed. The first button, with the focus, cancels. */
export function askForConfirmation(title, verb, ...content) {
    const dialog = document.getElementById("confirmation");
    fillElement("confirmation-title", title);
    fillElement("confirmation-content", ...content);
    fillElement("confirm", verb);
    dialog.returnValue = "";
    dialog.showModal();
    return new Promise((resolve) => {
        dialog.addEventListener("close", () => resolve(dialog.returnValue === "confirmed"),
            { once: true });
    });
}
