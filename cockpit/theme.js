// Follows the style that the user chose in Cockpit's menu: light, dark, or the system's style.

function showTheme() {
    document.documentElement.dataset.theme = localStorage.getItem("shell:style") ?? "auto";
}

/** Show the page in Cockpit's style, now and after each change. */
export function followTheme() {
    window.addEventListener("storage", showTheme);
    // Cockpit's shell notifies the frames of its window with this event.
    window.addEventListener("cockpit-style", showTheme);
    showTheme();
}
