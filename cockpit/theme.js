// Follows the style that the user chose in Cockpit's menu: light, dark, or that of the system.

function showTheme() {
    document.documentElement.dataset.theme = localStorage.getItem("shell:style") ?? "auto";
}

/** Show the page in Cockpit's style, now and after each change. */
export function followTheme() {
    window.addEventListener("storage", showTheme);
    // The shell tells frames of its own window in this way.
    window.addEventListener("cockpit-style", showTheme);
    showTheme();
}
