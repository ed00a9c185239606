// Runs the command `hbatune` on the host. Only this module talks to Cockpit's bridge.

/* global cockpit */

/** Exit codes of an answer; every other code is a failure (docs/exit-codes.md). */
const ANSWERS = [0, 1, 4];

/**
 * Return a function that takes output in pieces, and passes on whole documents and messages.
 *
 * hbatune prints a JSON document in one line, or from a line "{" to a line "}". Every other line
 * is a message for a person.
 */
function makeReader(onDocument, onMessage) {
    let rest = "";
    let documentLines = [];
    return (piece) => {
        const lines = (rest + piece).split("\n");
        rest = lines.pop();
        for (const line of lines) {
            if (documentLines.length > 0 || line === "{") {
                documentLines.push(line);
                if (line === "}") {
                    onDocument(JSON.parse(documentLines.join("\n")));
                    documentLines = [];
                }
            } else if (line.startsWith("{")) {
                onDocument(JSON.parse(line));
            } else if (line.trim() !== "") {
                onMessage(line.replace(/^hbatune: /, "").trim());
            }
        }
    };
}

/**
 * Start `hbatune` and return the process, with `finished`: a promise of its exit code.
 *
 * The output is "out" for messages too, so they arrive while the command runs.
 */
function startHbatune(words, superuser, onDocument, onMessage) {
    const read = makeReader(onDocument, onMessage);
    const process = cockpit.spawn(["hbatune", ...words], { superuser, err: "out" });
    process.stream(read);
    const finished = new Promise((resolve) => {
        const end = (code) => {
            read("\n");
            resolve(code);
        };
        process.then(() => end(0)).catch((error) => {
            if (error.problem === "not-found")
                onMessage("hbatune is not installed on this host");
            else if (error.exit_status === null && error.problem !== "cancelled")
                onMessage(error.message);
            end(error.exit_status);
        });
    });
    return { process, finished };
}

/** Run `hbatune` and return its answer: exit code, document or null after a failure, messages. */
async function runHbatune(words, superuser, onMessage = () => {}) {
    const messages = [];
    let printed = null;
    const { finished } = startHbatune(words, superuser, (read) => { printed = read; }, (message) => {
        messages.push(message);
        onMessage(message);
    });
    const code = await finished;
    return { code, document: ANSWERS.includes(code) ? printed : null, messages };
}

/** Run a command that looks: as root if the user may, otherwise as the user. */
export function lookWithHbatune(words) {
    return runHbatune([...words, "--json"], "try");
}

/** Run a command that changes values, as root. Call `onMessage` for each message at once. */
export function changeWithHbatune(words, onMessage) {
    return runHbatune([...words, "--json"], "require", onMessage);
}

/** Run `hbatune watch` until the returned function is called. */
export function watchWithHbatune(onDocument, onMessage) {
    const { process } = startHbatune(["watch", "--json"], "try", onDocument, onMessage);
    return () => process.close("cancelled");
}

/** Call `onChange` with whether the user may change this host, now and after each change. */
export function followPermission(onChange) {
    const permission = cockpit.permission({ admin: true });
    const report = () => onChange(permission.allowed === true);
    permission.addEventListener("changed", report);
    report();
}
